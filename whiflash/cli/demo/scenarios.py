"""What the demo's sessions are about: kinds of work, and their fillings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from whiflash.cli.demo.tools import World


@dataclass(frozen=True, slots=True)
class Example:
    """A turn that the prompt shows as done before: the user's words, the calls of one message
    (tool and JSON text of the arguments), and the answer. The results are not written
    here: the tools are run on the world of the kind."""

    user: str
    calls: tuple[tuple[str, str], ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work: what the model is told, which tools it has, and what was done before.

    world: what the examples ran on.
    """

    name: str
    system: str
    tools: tuple[str, ...]
    examples: tuple[Example, ...]
    world: World = field(default_factory=World)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One session: a kind of work with its own world and the user's turns."""

    name: str
    kind: Kind
    turns: tuple[str, ...]
    world: World


def tool_call(name: str, **values: Any) -> tuple[str, str]:
    """A call of an example: the tool and the JSON text of its arguments."""
    return name, json.dumps(values, ensure_ascii=False)
