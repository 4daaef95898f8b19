"""Recorded conversations, and what a model would have emitted in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whiflash.chat.format import ChatFormat
from whiflash.core.errors import InvalidRequestError
from whiflash.core.protocols import Tokenizer
from whiflash.trajectories.holdings import content_id
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.scope import OwnerOf, Scopes

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A recorded run: OpenAI-shaped messages, as they came, and what is known about it.

    run_id: "" takes a name that follows from the messages.
    subject: end user; narrows the scope that the run is stored in.
    """

    messages: tuple[Json, ...]
    tools: tuple[Json, ...] = ()
    run_id: str = ""
    agent: str = ""
    subject: str = ""
    model: str = ""

    @property
    def run_name(self) -> str:
        """Different runs have different ones; the same run always the same."""
        if self.run_id:
            return self.run_id
        text = json.dumps([self.messages, self.tools], sort_keys=True, default=str)
        return "import-" + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class TurnReader:
    """Writes conversations out by a model's chat template and takes the assistant's turns, up to
    the token that ends them: nothing of users and tools is stored."""

    def __init__(self, chat: ChatFormat, tokenizer: Tokenizer, eos_ids: Collection[int]) -> None:
        self._chat = chat
        self._tokenizer = tokenizer
        self._eos_ids = frozenset(eos_ids)

    def records(
        self, conversation: Conversation, scopes: Scopes, owner_of: OwnerOf
    ) -> list[TrajectoryRecord]:
        """One per assistant turn that says something, in order; the same ones each time.
        Raises InvalidRequestError where the template cannot write the conversation."""
        namespace = scopes.namespace(owner_of(conversation.subject))
        run_id = conversation.run_name
        records = (
            TrajectoryRecord(
                namespace=namespace,
                run_id=run_id,
                tokens=np.array(ids, np.int32),
                segment=number,
                model_label=conversation.model,
                finish_reason="stop",
                subject=conversation.subject,
                template_id=conversation.agent,
                tokenizer=self._tokenizer.fingerprint,
            )
            for number, ids in enumerate(self._turns(conversation))
            if ids
        )
        return [replace(record, record_id=content_id(record)) for record in records]

    def _turns(self, conversation: Conversation) -> Iterator[list[int]]:
        messages, tools = conversation.messages, conversation.tools or None
        self._chat.render(messages, tools)  # complains about the whole of it at once
        for end, message in enumerate(messages, 1):
            if message["role"] != "assistant":
                continue
            prompt = self._chat.render(messages[: end - 1] or _NO_PROMPT, tools)
            written = self._chat.render(
                [*(messages[: end - 1] or _NO_PROMPT), message], tools, add_generation_prompt=False
            )
            if not written.startswith(prompt):
                raise InvalidRequestError(
                    f"message {end - 1}: the chat template does not write this turn behind its "
                    "prompt, so what the model would have emitted is not known",
                    "messages",
                )
            yield self._ids(written[len(prompt) :])

    def _ids(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text)
        for place, token in enumerate(ids):
            if token in self._eos_ids:
                return ids[: place + 1] if place else []
        return self._tokenizer.encode(text.rstrip())


_NO_PROMPT: tuple[Json, ...] = ({"role": "user", "content": ""},)
