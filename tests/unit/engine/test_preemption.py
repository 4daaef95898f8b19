"""Memory runs out: the youngest gives way, comes back, and nobody can tell from the text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from whiflash.core.draft import DraftTree
from whiflash.core.errors import PromptTooLongError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.results import Delta, FinishReason
from whiflash.core.rows import DraftRow
from whiflash.engine.core import EngineCore
from whiflash.engine.sequence import State
from whiflash.engine.ticket import Ticket
from whiflash.target.load import LoadedTarget
from whiflash.testing.drafters import RandomDrafter
from whiflash.testing.engines import MAX_STEPS, drain
from whiflash.testing.exactness import require_same_text
from whiflash.testing.plain import plain_answer
from whiflash.testing.requests import Planned

MakeCore = Callable[..., EngineCore]
SCRATCH = 8
ANSWER_TOKENS = 150


def prompt(number: int) -> tuple[int, ...]:
    return tuple(int(n) for n in np.random.default_rng(number).integers(3, 64, 40))


def request(number: int, max_tokens: int = ANSWER_TOKENS) -> GenerationRequest:
    params = SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=number, ignore_eos=True)
    return GenerationRequest(prompt(number), params)


def bytes_for(toy: LoadedTarget, *tokens: int) -> int:
    return sum(toy.target.cache_bytes(count + SCRATCH) for count in tokens)


def require_plain(toy: LoadedTarget, tickets: Sequence[Ticket]) -> None:
    """Same ids, text and usage identity as the plain loop's."""
    for ticket in tickets:
        plan = Planned(ticket.request, ticket.seed, 0)
        want = [
            plain_answer(toy.target, toy.tokenizer, ticket.request, index, ticket.seed)
            for index in range(ticket.request.params.n)
        ]
        done = {choice.index: choice for choice in ticket.result().choices}
        require_same_text(plan, done, want)


@pytest.fixture
def crowd(toy: LoadedTarget) -> list[Ticket]:
    """Four turns that fit one and a half at their longest, all of them at their start."""
    assert bytes_for(toy, 40 + 64) < bytes_for(toy, 40 + ANSWER_TOKENS)
    return [Ticket(request(number), number) for number in range(4)]


def test_the_youngest_gives_way_and_says_the_same(
    toy: LoadedTarget, make_core: MakeCore, crowd: list[Ticket]
) -> None:
    memory = 4 * bytes_for(toy, 40 + 64)
    core = make_core({"random": RandomDrafter(64)}, memory_bytes=memory, prefill_chunk=64)
    finished: list[int] = []
    sequences = [core.submit(ticket)[0] for ticket in crowd]
    waited: set[int] = set()
    for _ in range(MAX_STEPS):
        if not core.step():
            break
        core.check_integrity()
        waited |= {s.id for s in sequences if s.state is State.PREEMPTED}
        finished += [s.id for s in sequences if s.is_finished and s.id not in finished]
    assert core.counters.preemptions > 0
    assert sequences[0].id not in waited, "the oldest was preempted"
    assert finished == [s.id for s in sequences], "an older turn ended after a younger one"
    assert [s.usage.preemptions > 0 for s in sequences] == [s.id in waited for s in sequences]
    assert sum(s.usage.preemptions for s in sequences) == core.counters.preemptions
    require_plain(toy, crowd)


def test_a_stream_shows_nothing_of_it(
    toy: LoadedTarget, make_core: MakeCore, crowd: list[Ticket]
) -> None:
    core = make_core(memory_bytes=4 * bytes_for(toy, 40 + 64))
    for ticket in crowd:
        core.submit(ticket)
    drain(core)
    assert core.counters.preemptions > 0
    for ticket in crowd:
        deltas = list(ticket.deltas())
        assert all(isinstance(delta, Delta) for delta in deltas)
        (done,) = ticket.result().choices
        assert sum((delta.token_ids for delta in deltas), ()) == done.token_ids
        assert "".join(delta.text for delta in deltas) == done.text


def test_admission_reserves_no_longest_answer(toy: LoadedTarget, make_core: MakeCore) -> None:
    """vllm and sglang alike: a bound of thousands of tokens must not keep others waiting."""
    longest = bytes_for(toy, 40 + 400)
    core = make_core(memory_bytes=longest)
    tickets = [Ticket(request(number, 400), number) for number in range(3)]
    for ticket in tickets:
        core.submit(ticket)
    core.step()
    assert len(core.running) == 3
    assert sum(s.reserved_bytes for s in core.running) < longest
    for ticket in tickets:
        ticket.cancel()
    drain(core)
    with pytest.raises(PromptTooLongError, match="KV memory"):
        make_core(memory_bytes=longest - 1).submit(Ticket(request(0, 400), 0))


def test_finished_turns_give_way_before_running_ones(
    toy: LoadedTarget, make_core: MakeCore
) -> None:
    core = make_core(memory_bytes=bytes_for(toy, 40 + ANSWER_TOKENS, 40 + ANSWER_TOKENS))
    core.submit(first := Ticket(request(1), 1))
    drain(core)
    assert len(core.admission.prefixes) == 1
    tickets = [Ticket(request(number), number) for number in (2, 3)]
    for ticket in tickets:
        core.submit(ticket)
    drain(core)
    assert core.counters.preemptions == 0
    require_plain(toy, [first, *tickets])


class PreemptingDrafter(RandomDrafter):
    """While it drafts, the youngest of several rows loses its memory."""

    core: EngineCore | None = None

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = super().propose(rows)
        assert self.core is not None
        if len(rows) > 1 and len(self.log) % 3 == 0:
            self.core.admission.preempt(self.core.running[-1])
        return trees


def test_a_draft_of_a_preempted_row_is_dropped(toy: LoadedTarget, make_core: MakeCore) -> None:
    """vllm #30916: a draft that outlived its row's preemption broke what came after."""
    drafter = PreemptingDrafter(64)
    core = drafter.core = make_core({"random": drafter}, prefill_chunk=64)
    tickets = [Ticket(request(number, 40), number) for number in range(3)]
    for ticket in tickets:
        core.submit(ticket)
    drain(core)
    assert core.counters.preemptions > 5
    assert {f.row.sequence_id for f in drafter.feedback} <= drafter.opened.keys()
    require_plain(toy, tickets)


@pytest.mark.parametrize("steps", range(1, 9))
def test_preempted_at_any_moment(toy: LoadedTarget, make_core: MakeCore, steps: int) -> None:
    """While its prompt is read, at its first token, in the middle; twice in a row; with stop
    strings half seen, penalties, and choices that share a prompt."""
    params = SamplingParams(
        max_tokens=30, temperature=0.9, seed=5, stop=("zz", "q."), repetition_penalty=1.1, n=2
    )
    asked = dataclasses.replace(request(3), params=params)
    core = make_core({"random": RandomDrafter(64)}, prefill_chunk=11)
    core.submit(ticket := Ticket(asked, 5))
    for _ in range(2):
        for _ in range(steps):
            core.step()
        for sequence in list(core.running):
            core.admission.preempt(sequence)
        core._sift()
        core.check_integrity()
    drain(core)
    assert core.counters.preemptions > 0
    require_plain(toy, [ticket])


def test_a_preempted_turn_can_be_left_and_may_be_late(
    toy: LoadedTarget, make_core: MakeCore
) -> None:
    core = make_core(prefill_chunk=64)
    core.submit(ticket := Ticket(request(1), 1))
    core.submit(late := Ticket(dataclasses.replace(request(2), deadline_s=1e6), 2))
    for _ in range(5):
        core.step()
    for sequence in reversed(core.running):
        core.admission.preempt(sequence)
    core.running.clear()
    ticket.cancel()
    core.admission.waiting[1].submitted_s -= 2e6
    core.step()
    assert [t.result().choices[0].finish_reason for t in (ticket, late)] == [
        FinishReason.CANCELLED, FinishReason.DEADLINE
    ]  # fmt: skip
    assert not core.has_work
    want = plain_answer(toy.target, toy.tokenizer, request(1), 0, 1)
    told = ticket.result().choices[0].token_ids
    assert 0 < len(told) < ANSWER_TOKENS
    assert told == want.token_ids[: len(told)]
