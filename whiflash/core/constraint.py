"""What a request may demand of the form of its answer: declarative, so that it can travel."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reasoning(StrEnum):
    """Whether the answer begins with reasoning, which is free text up to `</think>`."""

    NONE = "none"
    OPEN = "open"  # the prompt has opened it
    OPTIONAL = "optional"  # the answer may open it with `<think>`


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool that may be called. parameters: JSON Schema of its arguments, as JSON text."""

    name: str
    parameters: str = '{"type": "object"}'


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """The answer is one JSON value and nothing else, reasoning apart.

    schema: JSON Schema as text; None for any JSON object.
    """

    schema: str | None = None
    reasoning: Reasoning = Reasoning.NONE


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """Calls in the hermes format, each with the arguments that its tool's schema allows.

    is_required: the answer is one call or more and nothing else, reasoning apart. Otherwise it is
                 free text, constrained from a call's opening marker to its closing one.
    named:       the one tool that may be called, one of `tools`; implies is_required.
    is_single:   at most one call (exactly one where it is required); nothing follows it.
    otherwise:   the answer is calls and nothing else, or this; not where calls are required.
    """

    tools: tuple[ToolSchema, ...]
    is_required: bool = False
    named: str | None = None
    is_single: bool = False
    otherwise: JsonAnswer | None = None
    reasoning: Reasoning = Reasoning.NONE


ConstraintSpec = JsonAnswer | ToolCalls
