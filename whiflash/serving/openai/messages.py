"""Messages as OpenAI's clients send them, those included that they got from us."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from whiflash.serving.openai.rules import Body, Refused

_ONE_TEXT = "only text can be read; send parts of type text"


class TextPart(Body):
    """A part of a content list."""

    type: Literal["text"]
    text: str


class RefusalPart(Body):
    """A refusal that the assistant wrote; for the prompt it is text."""

    type: Literal["refusal"]
    refusal: str


Part = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
Content = str | list[Part]


class FunctionCall(Body):
    """Name and arguments (JSON text) of a call."""

    name: str = Field(min_length=1)
    arguments: str = "{}"


class ToolCallEntry(Body):
    """A call in an assistant message. `index` stays behind when a client joins stream deltas."""

    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = None


class Message(Body):
    """One message of a conversation. Fields that other roles own are checked by the chat format."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCallEntry] | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: Annotated[object, Refused(_ONE_TEXT, neutral=([],))] = None
    audio: Annotated[object, Refused(_ONE_TEXT)] = None
    function_call: Annotated[object, Refused("function_call is outdated; use tool_calls")] = None

    def to_prompt(self) -> dict[str, Any]:
        """The message for the chat format."""
        message: dict[str, Any] = {"role": self.role, "content": self._text()}
        for name in ("name", "tool_call_id", "reasoning_content"):
            if value := getattr(self, name):
                message[name] = value
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump(exclude={"index"}) for call in self.tool_calls]
        return message

    def _text(self) -> str | None:
        if isinstance(self.content, list):
            return "".join(
                part.text if isinstance(part, TextPart) else part.refusal for part in self.content
            )
        return self.refusal if self.content is None and self.refusal else self.content
