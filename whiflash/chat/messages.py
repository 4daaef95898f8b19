"""Records of one assistant message, and their OpenAI-shaped dictionaries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from whiflash.core.errors import InvalidRequestError
from whiflash.core.results import FinishReason


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One complete call. `arguments` is the JSON object as the model wrote it, character for
    character: writing it anew would change the next prompt and end every cached prefix there."""

    name: str
    arguments: str

    def values(self) -> dict[str, Any]:
        """The arguments as a dictionary. Raises InvalidRequestError if they are not an object."""
        return read_arguments(self.arguments)


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """A call block that cannot be read: its text with the markers, and why, in one line."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """What one generated text says.

    text:       all of it, unchanged.
    reasoning:  None where none was opened; stripped of the newlines next to its tags, as content.
    calls:      complete calls in order; a tool that nobody offered is a call as well.
    broken:     call blocks that cannot be read.
    is_partial: the text ends inside reasoning or inside a call (the token budget ran out).
    is_regular: content, then calls, and nothing else: the template can write it back.
    """

    text: str
    content: str = ""
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    broken: tuple[BrokenCall, ...] = ()
    is_partial: bool = False
    is_regular: bool = True

    def finish_reason(self, reason: FinishReason) -> str:
        """The name that OpenAI's interface has for the end of this message."""
        is_call = bool(self.calls) and reason is FinishReason.STOP
        return "tool_calls" if is_call else reason.value

    def to_openai(self, id_prefix: str = "call_") -> dict[str, Any]:
        """The message for a client; the i-th call has the id `id_prefix` + i."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["content"] = self.content or None
            message["tool_calls"] = [
                call_to_openai(call, f"{id_prefix}{number}")
                for number, call in enumerate(self.calls)
            ]
        return message

    def to_history(self, id_prefix: str = "call_") -> dict[str, Any]:
        """The message for the next prompt: as `to_openai` where the template can write it back,
        else the text itself, so that the model sees what it wrote."""
        if self.is_regular:
            return self.to_openai(id_prefix)
        return {"role": "assistant", "content": self.text}


def call_to_openai(call: ToolCall, call_id: str) -> dict[str, Any]:
    """OpenAI's dictionary of one call."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call_id, "type": "function", "function": function}


def call_from_openai(entry: object) -> ToolCall:
    """The call in OpenAI's dictionary; arguments may be an object where text is usual.
    Raises InvalidRequestError on any other shape."""
    function = entry.get("function", entry) if isinstance(entry, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise InvalidRequestError("each tool call needs function.name as text", "messages")
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        raise InvalidRequestError(f"arguments of {name} must be a JSON object", "messages")
    read_arguments(arguments, name)
    return ToolCall(name, arguments)


def calls_from_openai(entries: object) -> tuple[ToolCall, ...]:
    """All calls of a message's `tool_calls`; none for None."""
    if entries is None:
        return ()
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise InvalidRequestError("tool_calls must be a list of calls", "messages")
    return tuple(call_from_openai(entry) for entry in entries)


def read_arguments(text: str, name: str = "the call") -> dict[str, Any]:
    """`text` as a JSON object. Raises InvalidRequestError if it is anything else."""
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"arguments of {name} are not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InvalidRequestError(f"arguments of {name} must be a JSON object")
    return values


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
