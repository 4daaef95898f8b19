"""The body of /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from whiflash.core.params import MAX_LOGPROBS
from whiflash.serving.openai.common_body import CommonBody, Text
from whiflash.serving.openai.messages import Message, TextPart
from whiflash.serving.openai.rules import Body, Honoured, JsonObject, NoEffect, Refused, bad_field
from whiflash.serving.openai.tools import MAX_TOOLS, AnswerFormat, Choice, NamedChoice, Tool

TEMPLATE_NAMES = ("messages", "tools", "add_generation_prompt")
_TEXT_ONLY = "only text goes in and comes out"
_OUTDATED = "outdated; use tools and tool_choice"


class Prediction(Body):
    """Text that the answer is expected to repeat."""

    type: Literal["content"]
    content: str | list[TextPart]

    def text(self) -> str:
        """All of it."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class PromptFields(Body):
    """What a chat prompt is made of beside its messages."""

    tools: Annotated[
        list[Tool] | None,
        Field(max_length=MAX_TOOLS),
        Honoured(f"up to {MAX_TOOLS} functions; `strict` adds nothing to what holds anyway"),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, bool | int | float | str | None] | None,
        Honoured("values for the model's chat template, such as `enable_thinking`"),
    ] = None

    def template_values(self) -> dict[str, Any]:
        """Values that reach the template."""
        return dict(self.chat_template_kwargs or {})

    @model_validator(mode="after")
    def _check_template_values(self) -> Self:
        for name in TEMPLATE_NAMES:
            if name in (self.chat_template_kwargs or {}):
                raise bad_field("chat_template_kwargs", f"chat_template_kwargs cannot hold {name}")
        return self


class ChatBody(PromptFields, CommonBody):
    """The whole request."""

    messages: Annotated[
        list[Message],
        Field(min_length=1),
        Honoured("roles system or developer (first), user, assistant, tool; text content"),
    ]
    max_completion_tokens: Annotated[
        int | None,
        Field(ge=1),
        Honoured("most tokens of the answer; the context limit ends it too"),
    ] = None
    max_tokens: Annotated[
        int | None, Field(ge=1), Honoured("older name of `max_completion_tokens`; not both")
    ] = None
    tool_choice: Annotated[
        Choice | None,
        Honoured("`none`, `auto`, `required` or one function; null is `auto` if there are tools"),
    ] = None
    parallel_tool_calls: Annotated[
        bool | None, Honoured("false: one call at most; null and true: any number")
    ] = None
    response_format: Annotated[
        AnswerFormat | None,
        Honoured("`text`, `json_object`, `json_schema`: the text is forced into it"),
    ] = None
    logprobs: Annotated[
        bool | None,
        Honoured("log-probabilities of the raw model, before penalties, temperature and filters"),
    ] = None
    top_logprobs: Annotated[
        int | None,
        Field(ge=0, le=MAX_LOGPROBS),
        Honoured(f"0 to {MAX_LOGPROBS} most likely tokens at each place; only with `logprobs`"),
    ] = None
    prediction: Annotated[
        Prediction | None,
        Honoured("text to draft from; never changes the answer, only how fast it comes"),
    ] = None

    metadata: Annotated[JsonObject | None, NoEffect("not kept")] = None
    store: Annotated[
        Literal[False] | None,
        Honoured(
            "false keeps the turn out of the trajectory store, as `whiflash.no_store` does; true "
            "is refused, since no completion can be fetched later"
        ),
    ] = None
    service_tier: Annotated[
        Literal["auto", "default"] | None, NoEffect("auto, default and null only: one tier")
    ] = None
    prompt_cache_key: Annotated[Text | None, NoEffect("prefixes are found by their tokens")] = None
    prompt_cache_retention: Annotated[
        Text | None, NoEffect("prefixes stay as long as memory lasts")
    ] = None
    safety_identifier: Annotated[Text | None, Honoured("end user where `user` names none")] = None

    functions: Annotated[object, Refused(_OUTDATED)] = None
    function_call: Annotated[object, Refused(_OUTDATED)] = None
    modalities: Annotated[object, Refused(_TEXT_ONLY, neutral=(["text"],))] = None
    audio: Annotated[object, Refused(_TEXT_ONLY)] = None
    reasoning_effort: Annotated[
        object, Refused("no such setting here; chat_template_kwargs reach the template")
    ] = None
    verbosity: Annotated[object, Refused("no such setting here; say it in the prompt")] = None
    web_search_options: Annotated[object, Refused("there is no search; give a tool")] = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        tools = {tool.function.name for tool in self.tools or ()}
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise bad_field("max_tokens", "max_tokens and max_completion_tokens exclude each other")
        if self.top_logprobs is not None and not self.logprobs:
            raise bad_field("top_logprobs", "top_logprobs needs logprobs: true")
        if len(tools) < len(self.tools or ()):
            raise bad_field("tools", "two tools have the same name")
        if isinstance(self.tool_choice, NamedChoice):
            if self.tool_choice.function.name not in tools:
                raise bad_field("tool_choice", "tool_choice names a function that is not in tools")
        elif self.tool_choice == "required" and not tools:
            raise bad_field("tool_choice", "tool_choice required needs tools")
        return self
