"""A backend in pure Python, for tests of what stands in front of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from whiflash.chat.format import ChatFormat
from whiflash.chat.source import own_source
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import Tokenizer
from whiflash.core.results import Completion, Delta, FinishReason
from whiflash.core.rows import NONE
from whiflash.core.usage import ArmUsage, Usage
from whiflash.serving.backend import Load, ServedModel

VOCAB_SIZE = 0x110000
EOS_ID = 0


class CharacterTokenizer:
    """An id is a code point, so every text survives and tests can read ids."""

    fingerprint = "characters"

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(token) for token in token_ids if token != EOS_ID)

    def id_to_token(self, token_id: int) -> str | None:
        return chr(token_id) if 0 <= token_id < VOCAB_SIZE else None


class ScriptedBackend:
    """Answers every request with `answer`, `round_tokens` characters a round, `round_s` apart.

    Counts what a test wants to know: `requests` (request, seed) in order of arrival, `running`,
    `most_running`, `cancelled`. An answer that starts with forced ids goes on behind them.
    `gate`, once cleared, holds all rounds until it is set again. `fault` is raised in place of
    the second round; `reason` ends the answers that are complete.
    """

    def __init__(
        self,
        answer: str = "an answer",
        *,
        round_tokens: int = 3,
        round_s: float = 0.0,
        slots: int = 4,
        context_limit: int = 4096,
        kv_tokens: int = 0,
        fault: Exception | None = None,
        reason: FinishReason = FinishReason.STOP,
    ) -> None:
        self.answer = answer
        self.fault = fault
        self.reason = reason
        self.requests: list[tuple[GenerationRequest, int]] = []
        self.running = 0
        self.most_running = 0
        self.cancelled = 0
        self.is_ready = True
        self.gate = asyncio.Event()
        self.gate.set()
        self.chat = _hermes()
        self.tokenizer: Tokenizer = CharacterTokenizer()
        self.model = ServedModel(
            "scripted", "scripted-1", context_limit, VOCAB_SIZE, (NONE, "retrieval"), 0,
            slots=slots, kv_tokens=kv_tokens, eos_ids=(EOS_ID,),
        )  # fmt: skip
        self._round_tokens = round_tokens
        self._round_s = round_s

    async def run(
        self, request: GenerationRequest, seed: int
    ) -> AsyncGenerator[Delta | Completion, None]:
        self.requests.append((request, seed))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        has_ended = False
        try:
            for index in range(request.params.n):
                async for event in self._choice(request, index, seed):
                    yield event
            has_ended = True
        finally:
            self.running -= 1
            self.cancelled += not has_ended

    async def _choice(
        self, request: GenerationRequest, index: int, seed: int
    ) -> AsyncGenerator[Delta | Completion, None]:
        ids = self.tokenizer.encode(self.answer)[: request.params.max_tokens]
        is_cut = len(ids) < len(self.answer)
        usage = Usage(prompt_tokens=len(request.prompt_ids))
        for start in range(len(request.forced_ids), len(ids), self._round_tokens):
            await asyncio.sleep(self._round_s)
            await self.gate.wait()
            if self.fault is not None and start:
                raise self.fault
            tokens = tuple(ids[start : start + self._round_tokens])
            _count(usage, len(tokens))
            yield Delta(index, tokens, self.tokenizer.decode(tokens), "retrieval", len(tokens) - 1)
        reason = FinishReason.LENGTH if is_cut else self.reason
        text = self.tokenizer.decode(ids[len(request.forced_ids) :])
        yield Completion(index, text, tuple(ids), reason, usage, seed, error="scripted")

    def plan(self) -> dict[str, Any]:
        return {"model": self.model.name, "arms": list(self.model.arms)}

    def load(self) -> Load:
        return Load(self.running, 0, self.running * 1000, 4000, 0.0)


def _hermes() -> ChatFormat:
    source = own_source("smollm2-135m")
    assert source is not None, "the built-in template"
    return ChatFormat(source)


def _count(usage: Usage, num_tokens: int) -> None:
    usage.completion_tokens += num_tokens
    usage.rounds += 1
    arm: ArmUsage = usage.arm("retrieval")
    arm.rounds += 1
    arm.emitted += num_tokens
    arm.drafted += num_tokens
    arm.accepted += num_tokens - 1
    for position in range(num_tokens):
        if position == len(arm.drafted_at):
            arm.drafted_at.append(0)
            arm.accepted_at.append(0)
        arm.drafted_at[position] += 1
        arm.accepted_at[position] += position < num_tokens - 1
