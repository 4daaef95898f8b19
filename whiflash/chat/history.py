"""Checks the messages of a request and brings them into the shape that templates expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whiflash.chat.messages import ToolCall, calls_from_openai
from whiflash.core.errors import InvalidRequestError

ROLES = ("system", "developer", "user", "assistant", "tool")
Message = Mapping[str, Any]


class ArgumentObject(dict[str, Any]):
    """The arguments of a call for a template: an object to look into, whose JSON `text` is
    printed as it was written."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__(call.values())
        self.text = call.arguments


def normal_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages with text content (never None), checked roles, and calls as
    `{"id", "type", "function": {"name", "arguments": ArgumentObject}}`.
    Raises InvalidRequestError, naming the message by its number."""
    if not messages:
        raise InvalidRequestError("messages must hold at least one message", "messages")
    normal = [_normal(number, message) for number, message in enumerate(messages)]
    for number, message in enumerate(normal):
        if message["role"] == "system" and number:
            raise _bad(number, "a system message must be the first one")
    return normal


def _normal(number: int, message: Message) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise _bad(number, "it must be an object with role and content")
    role = message.get("role")
    if role not in ROLES:
        raise _bad(number, f"role must be one of {', '.join(ROLES)}, got {role!r}")
    calls = _calls(number, message)
    if calls and role != "assistant":
        raise _bad(number, f"only an assistant message may hold tool_calls, this is {role}'s")
    content = _content(number, message.get("content"))
    if content is None and not calls:
        raise _bad(number, "content is missing")
    kept = {key: message[key] for key in ("name", "tool_call_id") if message.get(key)}
    if isinstance(message.get("reasoning_content"), str):
        kept["reasoning_content"] = message["reasoning_content"]
    normal = {"role": "system" if role == "developer" else role, "content": content or "", **kept}
    if calls:
        normal["tool_calls"] = calls
    return normal


def _content(number: int, content: object) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise _bad(number, "content must be text or a list of text parts")
    return "".join(_part(number, part) for part in content)


def _part(number: int, part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise _bad(number, "only parts of type text can be read")
    return text


def _calls(number: int, message: Message) -> list[dict[str, Any]]:
    entries = message.get("tool_calls")
    try:
        calls = calls_from_openai(entries)
    except InvalidRequestError as error:
        raise _bad(number, str(error)) from None
    return [
        {
            "id": entry.get("id", ""),
            "type": "function",
            "function": {"name": call.name, "arguments": ArgumentObject(call)},
        }
        for entry, call in zip(entries or [], calls, strict=True)
    ]


def _bad(number: int, rule: str) -> InvalidRequestError:
    return InvalidRequestError(f"message {number}: {rule}", "messages")
