"""From what a client asks to exact ids, off the event loop where that takes long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from whiflash.chat.format import ChatFormat
from whiflash.chat.hermes import HermesParser
from whiflash.core.constraint import Reasoning
from whiflash.core.errors import InvalidRequestError
from whiflash.core.protocols import Tokenizer
from whiflash.serving.backend import Backend
from whiflash.serving.call import ChatPrompt, Prompt, TextPrompt, TokenPrompt

INLINE_CHARACTERS = 2_000
"""Shorter prompts are rendered and tokenised in place: a thread's hand-over costs as much."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """text: what the template wrote, None for exact ids. chat: the format that reads the answer,
    None where the prompt is no chat."""

    token_ids: tuple[int, ...]
    text: str | None = field(default=None, repr=False)
    chat: ChatFormat | None = field(default=None, repr=False)

    def parser(self, has_calls: bool = True) -> HermesParser | None:
        """A new parser for one choice."""
        if self.chat is None or self.text is None:
            return None
        return self.chat.parser(self.text, has_calls)

    def call_marker(self) -> str:
        """See ChatFormat; "" where the prompt is no chat."""
        return "" if self.chat is None else self.chat.call_marker

    def reasoning(self) -> Reasoning:
        """Whether the answer begins with reasoning."""
        if self.chat is None or self.text is None:
            return Reasoning.NONE
        return self.chat.reasoning(self.text)


async def prepare_prompt(backend: Backend, prompt: Prompt) -> PreparedPrompt:
    """Renders and tokenises. Raises InvalidRequestError if the prompt cannot be written, or
    where the model has no chat template."""
    if isinstance(prompt, TokenPrompt):
        return PreparedPrompt(prompt.token_ids)
    if isinstance(prompt, TextPrompt):
        return await _off_loop(
            len(prompt.text), lambda: _from_text(backend.tokenizer, prompt.text, None)
        )
    chat = backend.chat
    return await _off_loop(
        _num_characters(prompt), lambda: _from_chat(backend.tokenizer, chat, prompt)
    )


async def encode_text(backend: Backend, text: str) -> tuple[int, ...]:
    """Ids of a text that is no prompt (a prediction)."""
    return await _off_loop(len(text), lambda: _encode(backend.tokenizer, text, "prediction"))


def _from_chat(tokenizer: Tokenizer, chat: ChatFormat, prompt: ChatPrompt) -> PreparedPrompt:
    reserved = {"messages", "tools", "add_generation_prompt"} & prompt.template_values.keys()
    if reserved:
        raise InvalidRequestError(
            f"template value {min(reserved)!r} belongs to the server; leave it out",
            "template_values",
        )
    text = chat.render(prompt.messages, prompt.tools or None, **prompt.template_values)
    return _from_text(tokenizer, text, chat)


def _from_text(tokenizer: Tokenizer, text: str, chat: ChatFormat | None) -> PreparedPrompt:
    return PreparedPrompt(_encode(tokenizer, text, "prompt"), text, chat)


def _encode(tokenizer: Tokenizer, text: str, what: str) -> tuple[int, ...]:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"the {what} holds half a character (one surrogate of a pair), which is no text", what
        ) from None
    return tuple(tokenizer.encode(text))


def _num_characters(prompt: ChatPrompt) -> int:
    return sum(len(str(message.get("content", ""))) for message in prompt.messages) + (
        len(json.dumps(prompt.tools, default=str)) if prompt.tools else 0
    )


async def _off_loop(num_characters: int, work: Callable[[], T]) -> T:
    if num_characters <= INLINE_CHARACTERS:
        return work()
    return await asyncio.to_thread(work)
