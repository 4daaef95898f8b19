"""The bodies of /v1/completions and /tokenize."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from whiflash.core.params import MAX_LOGPROBS
from whiflash.serving.openai.chat_body import PromptFields
from whiflash.serving.openai.common_body import CommonBody
from whiflash.serving.openai.messages import Message
from whiflash.serving.openai.rules import Honoured, Refused, bad_field

MAX_PROMPTS = 64
Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
IdLists = Annotated[list[Ids], Field(min_length=1, max_length=MAX_PROMPTS)]


class CompletionBody(CommonBody):
    """The whole request."""

    prompt: Annotated[
        str | Ids | Texts | IdLists,
        Honoured(
            f"text, token ids, or up to {MAX_PROMPTS} of either; text goes to the model as it is"
        ),
    ]
    max_tokens: Annotated[
        int | None, Field(ge=1), Honoured("most tokens of the answer; null is 16")
    ] = 16
    echo: Annotated[
        bool | None, Honoured("puts the prompt before the answer; text prompts without `logprobs`")
    ] = None
    logprobs: Annotated[
        int | None,
        Field(ge=0, le=MAX_LOGPROBS),
        Honoured(f"0 to {MAX_LOGPROBS} most likely tokens of the raw model at each place"),
    ] = None

    suffix: Annotated[object, Refused("the model cannot fill in between two texts")] = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.echo and (self.logprobs is not None or not self.is_text):
            raise bad_field("echo", "echo needs a text prompt and excludes logprobs")
        if len(self.prompts()) * (self.n or 1) > 128:
            raise bad_field("n", "at most 128 choices of all prompts together")
        return self

    @property
    def is_text(self) -> bool:
        """The prompts are texts, not token ids."""
        return isinstance(self.prompts()[0], str)

    def prompts(self) -> list[str | list[int]]:
        """One or more, all of a kind."""
        given: Any = self.prompt
        is_one = isinstance(given, str) or isinstance(given[0], int)
        return [given] if is_one else list(given)


class TokenizeBody(PromptFields):
    """Text, or a chat to be written out first."""

    messages: Annotated[
        list[Message] | None,
        Field(min_length=1),
        Honoured("a chat, written out by the model's template; not with `prompt`"),
    ] = None
    prompt: Annotated[str | None, Honoured("text, tokenised as it is")] = None
    model: Annotated[str | None, Honoured("null or the served model")] = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.messages is None) is (self.prompt is None):
            raise bad_field("prompt", "give either prompt or messages")
        return self
