"""What a server without speculation answers: the yardstick of all exactness tests.

One token at a time, and no engine code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.errors import InvalidRequestError
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import CompiledConstraint, ForwardSegment, Target, Tokenizer
from whiflash.core.results import FinishReason
from whiflash.sampling.noise import derive_key
from whiflash.sampling.sampler import SequenceSampler


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
