"""Requests for random scenarios: what is asked, when it arrives, when its caller leaves."""

from __future__ import annotations

import random
from dataclasses import dataclass

from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import CompiledConstraint
from whiflash.engine.ticket import Ticket


@dataclass(slots=True)
class Planned:
    """A request, when it arrives, and when its caller leaves (None: never). grammar: its
    constraint, compiled. after: the turn before, which must be over."""

    request: GenerationRequest
    seed: int
    arrives_at_step: int
    cancels_at_step: int | None = None
    ticket: Ticket | None = None
    cancels_mid_draft: bool = False
    grammar: CompiledConstraint | None = None
    after: Planned | None = None


class RandomRequests:
    """Requests over a toy vocabulary: prompts that share prefixes and repeat themselves, and all
    sampling parameters. `words` are strings that the toy's text may contain."""

    def __init__(
        self, rng: random.Random, prompts: list[tuple[int, ...]], vocab_size: int, words: list[str]
    ) -> None:
        self._rng = rng
        self._prompts = prompts
        self._vocab_size = vocab_size
        self._words = words

    def draw(self) -> Planned:
        rng = self._rng
        prompt = self._prompt()
        params = self._params()
        request = GenerationRequest(
            prompt_ids=prompt,
            params=params,
            namespace=rng.choice(["local", "local", "other"]),
            prediction_ids=tuple(prompt[-12:]) if rng.random() < 0.2 else (),
            max_draft=rng.choice([None, None, 0, 1, 3]),
            store=rng.random() < 0.8,
        )
        arrives = rng.randrange(12)
        cancels = arrives + rng.randrange(1, 8) if rng.random() < 0.12 else None
        return Planned(
            request, rng.getrandbits(64), arrives, cancels, cancels_mid_draft=rng.random() < 0.2
        )

    def _prompt(self) -> tuple[int, ...]:
        rng = self._rng
        base = rng.choice(self._prompts)
        kept = base[: rng.randrange(2, len(base) + 1)]
        fresh = tuple(rng.randrange(3, self._vocab_size) for _ in range(rng.randrange(0, 6)))
        return kept + fresh

    def _params(self) -> SamplingParams:
        rng = self._rng
        max_tokens = rng.choice([1, 2, 5, 17, 24, 40])
        options: dict[str, object] = {"max_tokens": max_tokens}
        if rng.random() < 0.6:
            options["temperature"] = rng.choice([0.5, 0.8, 1.0, 1.5])
            options["seed"] = rng.getrandbits(32)
            options["top_k"] = rng.choice([0, 0, 5, 20])
            options["top_p"] = rng.choice([1.0, 1.0, 0.9, 0.5])
            options["min_p"] = rng.choice([0.0, 0.0, 0.05])
        if rng.random() < 0.3:
            options["repetition_penalty"] = rng.choice([0.9, 1.2])
            options["presence_penalty"] = rng.choice([0.0, 0.7])
            options["frequency_penalty"] = rng.choice([0.0, -0.5, 0.4])
        if rng.random() < 0.2:
            banned = rng.randrange(3, self._vocab_size)
            options["logit_bias"] = {banned: -100.0, rng.randrange(3, self._vocab_size): 2.0}
        if rng.random() < 0.2:
            options["min_tokens"] = rng.randrange(1, max_tokens + 1)
        if rng.random() < 0.3:
            options["stop"] = tuple(rng.sample(self._words, rng.randrange(1, 3)))
        if rng.random() < 0.2:
            options["stop_token_ids"] = (rng.randrange(3, self._vocab_size),)
        if rng.random() < 0.1:
            options["ignore_eos"] = True
        if rng.random() < 0.15:
            options["n"] = rng.choice([2, 3])
        if rng.random() < 0.15:
            options["logprobs"] = rng.choice([0, 2])
        return SamplingParams(**options)  # type: ignore[arg-type]
