"""Random scenarios whose texts must equal the plain loop's: the exactness gate (design.md 5).

A scenario is a function of its seed: model, drafters, policy, parameters, batch mix, arrivals
and cancellations. `plain_answer` is the yardstick and uses no engine code."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.errors import InvalidRequestError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import CompiledConstraint, ForwardSegment, Target, Tokenizer
from whiflash.core.results import Completion, FinishReason
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket
from whiflash.sampling.noise import derive_key
from whiflash.sampling.sampler import SequenceSampler

MAX_STEPS = 5_000


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """What a server without speculation answers."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason


def plain_answer(
    target: Target,
    tokenizer: Tokenizer,
    request: GenerationRequest,
    index: int,
    seed: int,
    grammar: CompiledConstraint | None = None,
) -> PlainAnswer:
    """One token at a time, one row a forward, finish checks in the order of design.md 4 done
    naively on the whole text, each mask from a fresh replay of all that was generated."""
    info, params = target.info, request.params
    key = derive_key(seed, index, request.prompt_ids)
    sampler = SequenceSampler(params, key, request.prompt_ids, info.vocab_size, info.eos_ids)
    cache = target.new_cache(len(request.prompt_ids) + 1)
    pending = np.asarray([*request.prompt_ids, *request.forced_ids], np.int64)
    generated = list(request.forced_ids)
    while True:
        logits = target.forward([ForwardSegment(cache, pending, None, 1)]).logits[-1]
        cache.commit(range(len(pending)))
        try:
            generated.append(sampler.sample(logits, generated, _allowed(grammar, generated)))
        except InvalidRequestError:
            cache.release()
            text = tokenizer.decode(generated)[_shown(tokenizer, request) :]
            return PlainAnswer(tuple(generated), text, FinishReason.ERROR)
        pending = np.asarray(generated[-1:], np.int64)
        answer = _finished(tokenizer, request, generated, info.eos_ids, info.context_limit)
        if answer is not None:
            cache.release()
            return answer


def _allowed(
    grammar: CompiledConstraint | None, generated: list[int]
) -> npt.NDArray[np.bool_] | None:
    if grammar is None:
        return None
    state = grammar.start()
    assert all(state.advance(token) for token in generated), "an answer left its grammar"
    return state.masks(DraftTree.empty()).row(0)


def _shown(tokenizer: Tokenizer, request: GenerationRequest) -> int:
    """Characters of the forced prefix that its client has: all but what may yet have become a
    stop string when it was delivered."""
    text = tokenizer.decode(request.forced_ids)
    held = [
        length
        for stop in request.params.stop
        for length in range(1, min(len(stop), len(text) + 1))
        if text.endswith(stop[:length])
    ]
    return len(text) - max(held, default=0)


def _finished(
    tokenizer: Tokenizer,
    request: GenerationRequest,
    generated: list[int],
    eos_ids: tuple[int, ...],
    context_limit: int,
) -> PlainAnswer | None:
    params = request.params
    ends = set(params.stop_token_ids) | (set() if params.ignore_eos else set(eos_ids))
    skipped = _shown(tokenizer, request)
    if generated[-1] in ends and len(generated) >= params.min_tokens:
        text = tokenizer.decode(generated[:-1])
        return PlainAnswer(tuple(generated), text[skipped:], FinishReason.STOP)
    text = tokenizer.decode(generated)
    if len(generated) >= params.min_tokens:
        # Earlier tokens were checked in their turn: only what the last one completes is new.
        known = len(tokenizer.decode(generated[:-1]))
        ends_at = {
            (end, end - len(stop))
            for stop in params.stop
            for end in range(known + 1, len(text) + 1)
            if text[:end].endswith(stop)
        }
        if ends_at:
            start = min(ends_at)[1]
            return PlainAnswer(tuple(generated), text[skipped:start], FinishReason.STOP)
    if (
        len(generated) >= params.max_tokens
        or len(request.prompt_ids) + len(generated) >= context_limit
    ):
        return PlainAnswer(tuple(generated), text[skipped:], FinishReason.LENGTH)
    return None


@dataclass(slots=True)
class Planned:
    """A request, when it arrives, and when its caller leaves (None: never). grammar: its
    constraint, compiled."""

    request: GenerationRequest
    seed: int
    arrives_at_step: int
    cancels_at_step: int | None = None
    ticket: Ticket | None = None
    cancels_mid_draft: bool = False
    grammar: CompiledConstraint | None = None


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


def run_planned(
    core: EngineCore, planned: list[Planned], check_every: int = 7
) -> list[dict[int, Completion]]:
    """Steps the core until all are done; completions by choice, per planned request."""
    for step in range(MAX_STEPS):
        for plan in planned:
            if plan.arrives_at_step == step:
                plan.ticket = Ticket(plan.request, plan.seed, grammar=plan.grammar)
                core.submit(plan.ticket)
            if plan.ticket is not None and plan.cancels_at_step == step:
                plan.ticket.cancel()
        has_worked = core.step()
        if step % check_every == 0:
            core.check_integrity()
        if not has_worked and all(plan.ticket is not None for plan in planned):
            core.check_integrity()
            return [_completions(plan) for plan in planned]
    raise AssertionError(f"the engine did not finish within {MAX_STEPS} steps")


def _completions(plan: Planned) -> dict[int, Completion]:
    assert plan.ticket is not None
    assert plan.ticket.is_done, "a request was lost"
    return {c.index: c for c in plan.ticket.result().choices}


def require_same_text(
    plan: Planned, completions: dict[int, Completion], answers: list[PlainAnswer]
) -> int:
    """Every choice equals the plain loop's; a cancelled one is a prefix of it. Returns the number
    of choices compared. Raises AssertionError naming the first difference."""
    for index, want in enumerate(answers):
        got = completions[index]
        where = f"seed {plan.seed}, choice {index} of {plan.request}: {got} instead of {want}"
        if got.finish_reason is FinishReason.CANCELLED:
            assert got.token_ids == want.token_ids[: len(got.token_ids)], where
            continue
        assert got.token_ids == want.token_ids, where
        assert got.text == want.text, where
        assert got.finish_reason is want.finish_reason, where
        _require_usage(plan.request, got)
    return len(answers)


def _require_usage(request: GenerationRequest, got: Completion) -> None:
    """The identity of design.md 2: the first token, then emitted per round, ending ones apart."""
    usage = got.usage
    per_arm = usage.arms.values()
    emitted = sum(arm.emitted + arm.ending_emitted for arm in per_arm)
    fresh = len(got.token_ids) - len(request.forced_ids)
    assert usage.completion_tokens == fresh, (usage, fresh)
    assert emitted + (fresh > 0) == fresh, (usage, fresh)
    assert usage.rounds == sum(arm.rounds + arm.ending_rounds for arm in per_arm)
    for arm in per_arm:
        assert arm.emitted == arm.rounds + arm.accepted
        assert sum(arm.accepted_at) == arm.accepted
    if request.params.logprobs is not None:
        assert len(got.logprobs) == fresh
