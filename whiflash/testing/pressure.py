"""What makes memory short in random scenarios: long turns side by side, and turns that follow turns
and want what those left; budgets to match."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import Target
from whiflash.core.results import FinishReason
from whiflash.testing.plain import PlainAnswer
from whiflash.testing.requests import Planned

CROWD_SHARE = 0.15
MAX_NEXT_TURNS = 3
_LONG_PROMPT_TOKENS = 40
_LONG_ANSWER_TOKENS = 150
_MARKER_CHARACTERS = 2


def crowd(rng: random.Random, vocab_size: int) -> list[Planned]:
    """Now and then three turns that are admitted together and outgrow what admission reserved."""
    if rng.random() >= CROWD_SHARE:
        return []
    return [_long_turn(rng, vocab_size) for _ in range(3)]


def _long_turn(rng: random.Random, vocab_size: int) -> Planned:
    prompt = tuple(rng.randrange(3, vocab_size) for _ in range(_LONG_PROMPT_TOKENS))
    params = SamplingParams(
        max_tokens=_LONG_ANSWER_TOKENS, temperature=rng.choice([0.0, 1.0]), ignore_eos=True,
        seed=rng.getrandbits(32), repetition_penalty=rng.choice([1.0, 1.1]),
    )  # fmt: skip
    return Planned(GenerationRequest(prompt, params), rng.getrandbits(64), rng.randrange(3))


def scarce_memory(
    rng: random.Random, target: Target, planned: Sequence[Planned], nodes: int
) -> int:
    """Plenty, or as little as lets the largest request run alone or beside a small one."""
    limit = target.info.context_limit
    least = max(
        target.cache_bytes(
            min(len(p.request.prompt_ids) + p.request.params.max_tokens, limit) + nodes
        )
        for p in planned
    )
    return rng.choice([least, 3 * least // 2, 2 * least, 4 << 20, 64 << 20])


def next_turns(
    planned: list[Planned],
    answers: list[list[PlainAnswer]],
    rng: random.Random,
    vocab_size: int,
    context_limit: int,
) -> list[Planned]:
    """At most MAX_NEXT_TURNS turns after some of `planned`, whose plain answers are known. Their
    first turns park if they can: the marker of a call is a part of their own text."""
    able = [
        (plan, own[0])
        for plan, own in zip(planned, answers, strict=True)
        if len(own) == 1 and own[0].finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    ]
    turns = []
    for plan, answer in rng.sample(able, min(MAX_NEXT_TURNS, len(able))):
        plan.request = dataclasses.replace(
            plan.request, call_marker=answer.text[:_MARKER_CHARACTERS]
        )
        prompt = _prompt(plan, answer, rng, vocab_size)
        if len(prompt) + 64 < context_limit:
            turns.append(_turn(plan, prompt, rng))
    return turns


def _prompt(
    plan: Planned, answer: PlainAnswer, rng: random.Random, vocab_size: int
) -> tuple[int, ...]:
    """Prompt, answer and a tool's result; now and then without the answer's first half, as
    templates leave out reasoning."""
    said = answer.token_ids
    if rng.random() < 0.3:
        said = said[len(said) // 2 :]
    result = tuple(rng.randrange(3, vocab_size) for _ in range(rng.randrange(2, 20)))
    return (*plan.request.prompt_ids, *said, *result)


def _turn(plan: Planned, prompt: tuple[int, ...], rng: random.Random) -> Planned:
    params = dataclasses.replace(plan.request.params, max_tokens=24, min_tokens=0, n=1)
    request = dataclasses.replace(
        plan.request, prompt_ids=prompt, params=params, forced_ids=(), constraint=None,
        call_marker="",
    )  # fmt: skip
    return Planned(request, rng.getrandbits(64), plan.arrives_at_step, after=plan)
