"""Renaming in code: a file is written back with one name changed."""

from whiflash.cli.demo.scenarios import Example, Kind, Scenario, tool_call
from whiflash.cli.demo.tools import World

_AREA = "def area(w, h):\n    return w * h"
_HALF = "def half(n):\n    return n / 2"
_JOIN = "def join(words):\n    return ' '.join(words)"
_LAST = "def last(items):\n    return items[-1]"
_HOURS = "def hours(minutes):\n    return minutes // 60"
_TAX = "def tax(price):\n    return price * 1.2"
_DOUBLE = "def double(n):\n    return n * 2"
_ADD = "def add(a, b):\n    return a + b"
_SHOUT = "def shout(text):\n    return text.upper()"
_DIFF = "def diff(a, b):\n    return a - b"


def _ask(path: str, text: str, new: str) -> str:
    return f"{path}:\n{text}\nRename {_name(text)} to {new}."


def _example(path: str, text: str, new: str) -> Example:
    call = tool_call("write_file", path=path, text=text.replace(_name(text), new))
    return Example(_ask(path, text, new), (call,), f"I saved {path} with the new name {new}.")


def _name(text: str) -> str:
    return text.removeprefix("def ").partition("(")[0]


KIND = Kind(
    name="code",
    system="You rename functions.",
    tools=("write_file",),
    examples=(
        _example("shapes.py", _AREA, "surface"),
        _example("numbers.py", _HALF, "divide"),
        _example("lines.py", _JOIN, "combine"),
        _example("lists.py", _LAST, "final"),
        _example("times.py", _HOURS, "whole_hours"),
        _example("prices.py", _TAX, "add_tax"),
    ),
    world=World(
        files={
            "shapes.py": _AREA,
            "numbers.py": _HALF,
            "lines.py": _JOIN,
            "lists.py": _LAST,
            "times.py": _HOURS,
            "prices.py": _TAX,
        }
    ),
)

FIRST = Scenario(
    "code",
    KIND,
    (_ask("maths.py", _DOUBLE, "twice"), _ask("sums.py", _ADD, "total")),
    World(files={"maths.py": _DOUBLE, "sums.py": _ADD}),
)
SECOND = Scenario(
    "code, other files",
    KIND,
    (_ask("voice.py", _SHOUT, "yell"), _ask("calc.py", _DIFF, "minus")),
    World(files={"voice.py": _SHOUT, "calc.py": _DIFF}),
)
