"""Conversations as OpenAI's clients write them, as messages of the API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whiflash.api.v1 import call_pb2 as pb
from whiflash.api.v1.stream_pb2 import AssistantMessage

_MESSAGE_FIELDS = {"role", "content", "name", "reasoning_content", "tool_calls", "tool_call_id"}
_FUNCTION_FIELDS = {"name", "description", "parameters", "strict"}


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages and tools, written out by the model's own template; `template_values` reach it
    (`enable_thinking`, ...)."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    template_values: Mapping[str, Any] = field(default_factory=dict)


def chat_message(chat: Chat) -> pb.ChatPrompt:
    """Raises ValueError on fields that the API has no place for."""
    return pb.ChatPrompt(
        messages=[_message(message) for message in chat.messages],
        tools=[_tool(tool) for tool in chat.tools],
        template_values_json=to_json(chat.template_values) if chat.template_values else "",
    )


def history_message(message: AssistantMessage) -> dict[str, Any]:
    """A finished answer (`Ended.message`) for the next prompt's messages: its parts where the
    template can write them back, else its text, so that the model sees what it wrote."""
    if not message.is_regular:
        return {"role": "assistant", "content": message.text}
    written: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.HasField("reasoning"):
        written["reasoning_content"] = message.reasoning
    if message.tool_calls:
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return written


def to_json(value: Mapping[str, Any]) -> str:
    """JSON text with the keys in their order. Raises ValueError on numbers JSON lacks."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _message(message: Mapping[str, Any]) -> pb.Message:
    _refuse_unknown("message", message, _MESSAGE_FIELDS)
    return pb.Message(
        role=message["role"],
        content=_text(message.get("content")),
        name=message.get("name"),
        reasoning_content=message.get("reasoning_content"),
        tool_calls=[_call(call) for call in message.get("tool_calls") or ()],
        tool_call_id=message.get("tool_call_id"),
    )


def _text(content: object) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise ValueError("content must be text or a list of text parts")
    parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("only content parts of type text can be sent")
    return "".join(map(str, parts))


def _call(call: Mapping[str, Any]) -> pb.ToolCall:
    function = call["function"]
    arguments = function.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else to_json(arguments)
    return pb.ToolCall(id=call.get("id", ""), name=function["name"], arguments=text)


def _tool(tool: Mapping[str, Any]) -> pb.Tool:
    """`strict` is left out: where calls are constrained, they always follow the schema."""
    function = tool.get("function", tool)
    _refuse_unknown("function", function, _FUNCTION_FIELDS)
    parameters = function.get("parameters")
    return pb.Tool(
        name=function["name"],
        description=function.get("description"),
        parameters_json="" if parameters is None else to_json(parameters),
    )


def _refuse_unknown(what: str, given: Mapping[str, Any], known: set[str]) -> None:
    unknown = given.keys() - known
    if unknown:
        raise ValueError(f"a {what} has no field {min(unknown)!r}; leave it out")
