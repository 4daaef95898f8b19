"""Prompts of the public API as the records that all front ends share."""

from __future__ import annotations

from typing import Any

from whiflash.api.v1 import call_pb2 as pb
from whiflash.core.errors import InvalidRequestError
from whiflash.serving.call import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from whiflash.serving.grpc.json_text import read_object

MAX_TOOLS = 256


def read_prompt(prompt: pb.Prompt) -> Prompt:
    """Raises InvalidRequestError where there is none, or JSON in it cannot be read."""
    kind = prompt.WhichOneof("kind")
    if kind == "chat":
        return _read_chat(prompt.chat)
    if kind == "text":
        return TextPrompt(prompt.text)
    if kind == "token_ids":
        return TokenPrompt(tuple(prompt.token_ids.ids))
    raise InvalidRequestError("the prompt is missing; give a chat, a text or token ids", "prompt")


def _read_chat(chat: pb.ChatPrompt) -> ChatPrompt:
    if len(chat.tools) > MAX_TOOLS:
        raise InvalidRequestError(f"at most {MAX_TOOLS} tools can be given", "tools")
    return ChatPrompt(
        messages=tuple(_read_message(message) for message in chat.messages),
        tools=tuple(_read_tool(tool) for tool in chat.tools),
        template_values=read_object(chat.template_values_json, "template_values_json"),
    )


def _read_message(message: pb.Message) -> dict[str, Any]:
    read: dict[str, Any] = {"role": message.role}
    read["content"] = message.content if message.HasField("content") else None
    if message.HasField("name"):
        read["name"] = message.name
    if message.HasField("tool_call_id"):
        read["tool_call_id"] = message.tool_call_id
    if message.HasField("reasoning_content"):
        read["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        read["tool_calls"] = [_read_call(call) for call in message.tool_calls]
    return read


def _read_call(call: pb.ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _read_tool(tool: pb.Tool) -> dict[str, Any]:
    """Keys in the order in which OpenAI's clients send them, so that the prompt is the same
    whichever protocol brought the tool."""
    if not tool.name:
        raise InvalidRequestError("each tool needs a name", "tools")
    function: dict[str, Any] = {"name": tool.name}
    if tool.HasField("description"):
        function["description"] = tool.description
    if tool.parameters_json:
        function["parameters"] = read_object(tool.parameters_json, "parameters_json")
    return {"type": "function", "function": function}
