"""Tools, the choice among them, and the format of the answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from whiflash.serving.openai.rules import Body, JsonObject

MAX_TOOLS = 256
Name = Annotated[str, Field(min_length=1, max_length=256)]


class Function(Body):
    """What a tool is called, what it is for, and the JSON schema of its arguments."""

    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None

    def to_prompt(self) -> dict[str, Any]:
        """What the model is told: only what was given. `strict` is not for its eyes."""
        return self.model_dump(exclude_none=False, exclude_unset=True, exclude={"strict"})


class Tool(Body):
    """A function that the model may call."""

    type: Literal["function"]
    function: Function

    def to_prompt(self) -> dict[str, Any]:
        """The tool for the chat format."""
        return {"type": "function", "function": self.function.to_prompt()}


class NamedFunction(Body):
    """The tool of a named choice."""

    name: Name


class NamedChoice(Body):
    """Exactly this tool is to be called."""

    type: Literal["function"]
    function: NamedFunction


Choice = Literal["none", "auto", "required"] | NamedChoice


class JsonSchema(Body):
    """`name`, `description` and `strict` do not reach the model: the schema holds always."""

    name: Name
    description: str | None = None
    schema_: JsonObject | None = Field(None, alias="schema")
    strict: bool | None = None


class TextFormat(Body):
    """Any text."""

    type: Literal["text"]


class ObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class SchemaFormat(Body):
    """JSON that a schema describes."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


AnswerFormat = Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")]
