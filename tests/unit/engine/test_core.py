"""The round loop: finish rules, cancellation, admission, failures; scripted drafts on the toy."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from whiflash.core.errors import InvalidRequestError, PromptTooLongError, QueueFullError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import ForwardOutput, ForwardSegment
from whiflash.core.results import FinishReason
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket
from whiflash.target.load import LoadedTarget
from whiflash.testing.drafters import OracleDrafter, WrongDrafter
from whiflash.testing.engines import drain, run
from whiflash.testing.plain import plain_answer

MakeCore = Callable[..., EngineCore]

PROMPT = tuple(range(5, 37))
ANSWER_TOKENS = 24


def request(**fields: object) -> GenerationRequest:
    params = fields.pop("params", SamplingParams(max_tokens=ANSWER_TOKENS, ignore_eos=True))
    return GenerationRequest(PROMPT, params, **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def answer(toy: LoadedTarget) -> tuple[int, ...]:
    """What the toy says to PROMPT, greedily."""
    return plain_answer(toy.target, toy.tokenizer, request(), 0, 0).token_ids


def oracle(toy: LoadedTarget, answer: tuple[int, ...], num_decoys: int = 0) -> OracleDrafter:
    def continuation(context: list[int], count: int) -> tuple[int, ...]:
        return answer[len(context) - len(PROMPT) :][:count]

    return OracleDrafter(continuation, toy.target.info.vocab_size, num_decoys=num_decoys)


def test_an_oracle_saves_rounds_and_changes_nothing(
    toy: LoadedTarget, make_core: MakeCore, answer: tuple[int, ...]
) -> None:
    core = make_core({"oracle": oracle(toy, answer)})
    ((done,),) = run(core, request())
    assert done.token_ids == answer
    assert done.usage.rounds <= -(-ANSWER_TOKENS // 9) + 1
    assert done.usage.arms["oracle"].accepted_length > 8


def test_rejections_leave_no_trace_in_the_cache(
    toy: LoadedTarget, make_core: MakeCore, answer: tuple[int, ...]
) -> None:
    """mlx-lm #1423: KV not trimmed after a rejection. The cache equals a fresh prefill's."""

    def continuation(context: list[int], count: int) -> tuple[int, ...]:
        return answer[len(context) - len(PROMPT) :][:count]

    core = make_core({"wrong": WrongDrafter(continuation, toy.target.info.vocab_size)})
    core.submit(ticket := Ticket(request(), 0))
    for _ in range(12):
        core.step()
    (sequence,) = core.running
    assert core.counters.rejected_at[1] > 5
    assert_cache_is_fresh(toy, sequence.ids[: sequence.cache.length].tolist(), sequence)
    drain(core)
    assert ticket.result().choices[0].token_ids == answer


def assert_cache_is_fresh(toy: LoadedTarget, ids: list[int], sequence: object) -> None:
    """The next token's logits from this cache and from a fresh prefill agree to the last bits."""
    root = np.asarray(sequence.ids[-1:], np.int64)  # type: ignore[attr-defined]
    fresh = toy.target.new_cache(len(ids))
    toy.target.forward([ForwardSegment(fresh, np.asarray(ids, np.int64), None, 0)])
    fresh.commit(range(len(ids)))
    expected = toy.target.forward([ForwardSegment(fresh, root, None, 1)]).logits
    used = sequence.cache  # type: ignore[attr-defined]
    got = toy.target.forward([ForwardSegment(used, root, None, 1)]).logits
    used.commit([])
    assert torch.allclose(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("num_decoys", [0, 1])
def test_the_earlier_of_stop_and_cap_ends_the_turn(
    toy: LoadedTarget, make_core: MakeCore, answer: tuple[int, ...], num_decoys: int
) -> None:
    """sglang #31599 and four more: the cap hid a stop inside the budget, or the other way."""
    firsts = [i for i, token in enumerate(answer[:9]) if token not in answer[:i]]
    for stop_at, cap in itertools.product(firsts, range(1, 10)):
        core = make_core({"oracle": oracle(toy, answer, num_decoys)})
        params = SamplingParams(max_tokens=cap, ignore_eos=True, stop_token_ids=(answer[stop_at],))
        ((done,),) = run(core, request(params=params))
        is_stop = stop_at < cap
        assert done.token_ids == answer[: stop_at + 1 if is_stop else cap]
        assert done.finish_reason is (FinishReason.STOP if is_stop else FinishReason.LENGTH)
        assert done.usage.completion_tokens == len(done.token_ids)


def test_a_stop_string_inside_an_accepted_run_discards_the_rest(
    toy: LoadedTarget, make_core: MakeCore, answer: tuple[int, ...]
) -> None:
    """transformers #48039."""
    text = toy.tokenizer.decode(answer)
    stop = text[4:7]
    at = text.index(stop)
    core = make_core({"oracle": oracle(toy, answer)})
    params = SamplingParams(max_tokens=ANSWER_TOKENS, ignore_eos=True, stop=(stop,))
    ((done,),) = run(core, request(params=params))
    assert done.text == text[:at]
    assert done.matched_stop == stop
    assert len(done.token_ids) == at + len(stop)
    arm = done.usage.arms["oracle"]
    assert arm.discarded > 0


def test_a_turn_that_continues_another_reuses_its_prefix(
    toy: LoadedTarget, make_core: MakeCore, answer: tuple[int, ...]
) -> None:
    """sglang #32459: tokens past a stop must never be in the key; cached tokens are exact."""
    core = make_core({"oracle": oracle(toy, answer)}, prefill_chunk=64)
    run(core, request())
    longer = dataclasses.replace(request(), prompt_ids=(*PROMPT, *answer, 7, 8))
    ((done,),) = run(core, longer)
    assert done.usage.cached_tokens == len(PROMPT) + len(answer) - 1
    other = dataclasses.replace(longer, namespace="somebody else")
    ((elsewhere,),) = run(core, other)
    assert elsewhere.usage.cached_tokens == 0
    assert elsewhere.token_ids == done.token_ids


def test_resuming_with_forced_ids_continues_exactly(toy: LoadedTarget, make_core: MakeCore) -> None:
    params = SamplingParams(max_tokens=20, temperature=1.0, seed=3, ignore_eos=True)
    ((whole,),) = run(make_core(), request(params=params), seed=3)
    for cut in (1, 7, 19):
        forced = whole.token_ids[:cut]
        ((rest,),) = run(make_core(), request(params=params, forced_ids=forced), seed=3)
        assert rest.token_ids == whole.token_ids
        assert toy.tokenizer.decode(forced) + rest.text == whole.text


def test_choices_differ_and_repeat_with_the_seed(make_core: MakeCore) -> None:
    params = SamplingParams(max_tokens=12, temperature=1.5, n=3, ignore_eos=True)
    (first,) = run(make_core(), request(params=params), seed=11)
    (again,) = run(make_core(max_batch=1), request(params=params), seed=11)
    assert [c.token_ids for c in first] == [c.token_ids for c in again]
    assert len({c.token_ids for c in first}) == 3
    assert [c.usage.cached_tokens for c in first] == [0, len(PROMPT) - 1, len(PROMPT) - 1]


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8])
def test_a_cancelled_request_is_gone_within_one_step(
    toy: LoadedTarget, make_core: MakeCore, answer: tuple[int, ...], steps: int
) -> None:
    """sglang #36333: a client that left must not keep a slot; others go on unchanged."""
    core = make_core({"oracle": oracle(toy, answer)}, prefill_chunk=8)
    core.submit(leaver := Ticket(request(), 0))
    core.submit(stayer := Ticket(request(), 0))
    for _ in range(steps):
        core.step()
    leaver.cancel()
    core.step()
    assert leaver.is_done
    assert leaver.result().choices[0].finish_reason in (
        FinishReason.CANCELLED, FinishReason.LENGTH
    )  # fmt: skip
    core.check_integrity()
    drain(core)
    assert stayer.result().choices[0].token_ids == answer


def test_a_deadline_ends_a_request(make_core: MakeCore) -> None:
    core = make_core()
    ((done,),) = run(core, request(deadline_s=0.0))
    assert done.finish_reason is FinishReason.DEADLINE
    assert done.token_ids == ()


def test_the_queue_is_bounded(make_core: MakeCore) -> None:
    core = make_core(max_batch=1, max_queue=2)
    for _ in range(3):
        core.submit(Ticket(request(), 0))
    with pytest.raises(QueueFullError, match="max_queue 2"):
        core.submit(Ticket(request(), 0))


def test_what_can_never_fit_is_refused_at_once(toy: LoadedTarget, make_core: MakeCore) -> None:
    limit = toy.target.info.context_limit
    with pytest.raises(PromptTooLongError, match="context limit"):
        make_core().submit(Ticket(GenerationRequest((5,) * limit), 0))
    with pytest.raises(PromptTooLongError, match="KV memory"):
        make_core(memory_bytes=1000).submit(Ticket(request(), 0))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"drafter": "eagle3"}, "drafter"),
        ({"namespace": ""}, "namespace"),
        ({"forced_ids": (5,) * ANSWER_TOKENS}, "forced_ids"),
        ({"forced_ids": (10_000,)}, "forced_ids"),
        ({"prediction_ids": (-1,)}, "prediction_ids"),
        ({"max_draft": -1}, "max_draft"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    make_core: MakeCore, fields: dict[str, object], param: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make_core().submit(Ticket(request(**fields), 0))
    assert caught.value.param == param


def test_the_context_limit_ends_the_answer(toy: LoadedTarget, make_core: MakeCore) -> None:
    limit = toy.target.info.context_limit
    prompt = tuple(5 + i % 50 for i in range(limit - 6))
    params = SamplingParams(max_tokens=50, ignore_eos=True)
    ((done,),) = run(make_core(prefill_chunk=128), GenerationRequest(prompt, params))
    assert len(done.token_ids) == 6
    assert done.finish_reason is FinishReason.LENGTH


def test_nan_logits_fail_only_their_own_request(
    toy: LoadedTarget, make_core: MakeCore, answer: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    core: EngineCore = make_core(prefill_chunk=64)
    core.submit(sick := Ticket(request(), 0))
    core.submit(well := Ticket(request(), 0))
    core.step()
    forward = toy.target.forward

    def broken(segments: object) -> ForwardOutput:
        output = forward(segments)  # type: ignore[arg-type]
        logits = output.logits.clone()
        logits[0] = float("nan")
        return ForwardOutput(logits, output.hidden)

    monkeypatch.setattr(toy.target, "forward", broken)
    core.step()
    monkeypatch.undo()
    drain(core)
    assert sick.result().choices[0].finish_reason is FinishReason.ERROR
    assert "NaN" in (sick.result().choices[0].error or "")
    assert well.result().choices[0].token_ids == answer


def test_one_row_of_each_kind_in_one_forward(
    toy: LoadedTarget, make_core: MakeCore, answer: tuple[int, ...]
) -> None:
    """vllm #54928: rows that draft beside rows that do not, in every order."""
    fields: list[dict[str, object]] = [{}, {"drafter": "none"}, {"max_draft": 1}]
    for order in itertools.permutations(fields):
        core = make_core({"oracle": oracle(toy, answer, num_decoys=1)})
        for (done,) in run(core, *(request(**given) for given in order)):
            assert done.token_ids == answer


def test_memory_is_conserved(toy: LoadedTarget, make_core: MakeCore) -> None:
    """sglang-jax #1147: after a drained run nothing is reserved, and eviction frees the rest."""
    needed = toy.target.cache_bytes(len(PROMPT) + ANSWER_TOKENS + 8)
    core = make_core(memory_bytes=2 * needed, max_batch=8)
    requests = [
        dataclasses.replace(request(), prompt_ids=(*PROMPT[i:], *PROMPT[:i])) for i in range(6)
    ]
    for (done,) in run(core, *requests):
        assert len(done.token_ids) == ANSWER_TOKENS
    assert core.admission.prefixes.num_bytes <= 2 * needed
