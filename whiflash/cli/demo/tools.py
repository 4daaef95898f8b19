"""The tools of the demo: real, small, and working on a world in memory alone."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]
_TYPES: dict[str, type] = {"string": str, "integer": int, "object": dict}


class ToolError(Exception):
    """The tool refuses these arguments; the model is told why."""


@dataclass(slots=True)
class World:
    """What the tools of one session read and change.

    stock: pieces by item; events: (day, time, room) -> title; files: text by path;
    settings: JSON objects by path; tickets: fields by number.
    """

    stock: dict[str, int] = field(default_factory=dict)
    events: dict[tuple[str, str, str], str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    tickets: dict[int, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool:
    """parameters: JSON schema type by name, all of them required."""

    name: str
    description: str
    parameters: Mapping[str, str]
    run: Callable[[World, Values], dict[str, Any] | str]

    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's interface describes it."""
        properties = {name: {"type": kind} for name, kind in self.parameters.items()}
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": {"type": "object", "properties": properties},
        }
        return {"type": "function", "function": function}

    def call(self, world: World, values: Values) -> str:
        """The result as text. Raises ToolError on arguments that do not fit."""
        self._check(values)
        result = self.run(world, values)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)

    def _check(self, values: Values) -> None:
        for name in self.parameters:
            if name not in values:
                raise ToolError(f"{name} is missing")
        for name, value in values.items():
            kind = self.parameters.get(name)
            if kind is None:
                raise ToolError(f"{self.name} has no argument {name}")
            if not isinstance(value, _TYPES[kind]) or isinstance(value, bool):
                raise ToolError(f"{name} must be of type {kind}")


def _set_stock(world: World, values: Values) -> dict[str, Any]:
    item, pieces = values["item"], values["pieces"]
    if item not in world.stock:
        raise ToolError(f"no item {item}")
    before = world.stock[item]
    world.stock[item] = pieces
    return {"item": item, "before": before, "pieces": pieces}


def _book_room(world: World, values: Values) -> dict[str, Any]:
    slot = (values["day"], values["time"], values["room"])
    if slot in world.events:
        raise ToolError(f"room {slot[2]} is taken by the {world.events[slot]}")
    world.events[slot] = values["title"]
    return {"booked": values["title"], "day": slot[0], "time": slot[1], "room": slot[2]}


def _write_file(world: World, values: Values) -> dict[str, Any]:
    path, text = values["path"], values["text"]
    before = world.files.get(path, "").splitlines()
    diff = list(difflib.ndiff(before, text.splitlines()))
    world.files[path] = text
    added = sum(line.startswith("+ ") for line in diff)
    return {"saved": path, "changed_lines": added}


def _save_settings(world: World, values: Values) -> dict[str, Any]:
    path, settings = values["path"], values["settings"]
    if path not in world.settings:
        raise ToolError(f"no settings {path}")
    before = world.settings[path]
    changed = [key for key in {**before, **settings} if before.get(key) != settings.get(key)]
    world.settings[path] = dict(settings)
    return {"saved": path, "changed": changed}


def _open_ticket(world: World, values: Values) -> dict[str, Any]:
    number = max(world.tickets, default=100) + 1
    world.tickets[number] = dict(values)
    return {"ticket": number, "team": values["team"], "priority": values["priority"]}


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "set_stock",
            "Sets how many pieces of an item are in stock.",
            {"item": "string", "pieces": "integer"},
            _set_stock,
        ),
        Tool(
            "book_room",
            "Books a room for a meeting.",
            {"title": "string", "day": "string", "time": "string", "room": "string"},
            _book_room,
        ),
        Tool(
            "write_file", "Writes a text file.", {"path": "string", "text": "string"}, _write_file
        ),
        Tool(
            "save_settings",
            "Saves all settings of a file.",
            {"path": "string", "settings": "object"},
            _save_settings,
        ),
        Tool(
            "open_ticket",
            "Opens a ticket for a team.",
            {"title": "string", "team": "string", "priority": "string"},
            _open_ticket,
        ),
    )
}
