"""What an incremental parser reports while the text arrives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What an event's text is."""

    REASONING = "reasoning"  # text: a piece of the reasoning
    CONTENT = "content"  # text: a piece of the content
    CALL_START = "call_start"  # text: the tool's name
    ARGUMENTS = "arguments"  # text: a piece of the JSON text of the arguments
    CALL_END = "call_end"  # the pieces since its CALL_START are one JSON object
    CALL_BROKEN = "call_broken"  # text: the whole block; what was sent of it is void


@dataclass(frozen=True, slots=True)
class ParseEvent:
    """`call` numbers the started calls from 0; None where the event belongs to no call."""

    kind: EventKind
    text: str = ""
    call: int | None = None
