"""Changing settings: a JSON object is copied with one value changed."""

import json
from typing import Any

from whiflash.cli.demo.scenarios import Example, Kind, Scenario, tool_call
from whiflash.cli.demo.tools import World

_MAIL = {"port": 25, "retries": 3, "wait": 40}
_IMAGE = {"width": 640, "height": 480, "border": 2}
_QUERY = {"limit": 50, "page": 1, "depth": 6}
_SOUND = {"volume": 7, "bass": 5, "delay": 20}
_CACHE = {"files": 200, "days": 7, "level": 3}
_ROBOT = {"speed": 30, "arms": 2, "range": 90}
_BACKUP = {"copies": 5, "hour": 3, "keep": 60}
_HOUSE = {"heat": 21, "fan": 4, "light": 70}


def _ask(path: str, settings: dict[str, Any], key: str, value: int) -> str:
    return f"The settings of {path} are {json.dumps(settings)}. Set {key} to {value}."


def _example(path: str, settings: dict[str, Any], key: str, value: int) -> Example:
    call = tool_call("save_settings", path=path, settings={**settings, key: value})
    return Example(
        _ask(path, settings, key, value), (call,), f"I saved {path} with {key} set to {value}."
    )


KIND = Kind(
    name="settings",
    system="You change settings.",
    tools=("save_settings",),
    examples=(
        _example("mail.json", _MAIL, "port", 587),
        _example("image.json", _IMAGE, "height", 360),
        _example("query.json", _QUERY, "depth", 9),
        _example("sound.json", _SOUND, "bass", 8),
        _example("mail.json", {**_MAIL, "port": 587}, "wait", 15),
    ),
    world=World(
        settings={
            "mail.json": _MAIL,
            "image.json": _IMAGE,
            "query.json": _QUERY,
            "sound.json": _SOUND,
        }
    ),
)

FIRST = Scenario(
    "settings",
    KIND,
    (_ask("cache.json", _CACHE, "level", 5), _ask("robot.json", _ROBOT, "speed", 45)),
    World(settings={"cache.json": _CACHE, "robot.json": _ROBOT}),
)
SECOND = Scenario(
    "settings, other files",
    KIND,
    (_ask("backup.json", _BACKUP, "keep", 90), _ask("house.json", _HOUSE, "light", 55)),
    World(settings={"backup.json": _BACKUP, "house.json": _HOUSE}),
)
