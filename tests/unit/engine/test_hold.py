"""Drafts that are made elsewhere: asked for first, waited for within a limit, dropped when late."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from whiflash.core.draft import DraftTree
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.rows import DraftRow
from whiflash.engine.core import EngineCore
from whiflash.engine.guard import guarded
from whiflash.engine.hold import Awaited, Hold
from whiflash.target.load import LoadedTarget
from whiflash.testing.drafters import OracleDrafter
from whiflash.testing.engines import run
from whiflash.testing.plain import plain_answer

MakeCore = Callable[..., EngineCore]
PROMPT = tuple(range(5, 37))


class DistantOracle(OracleDrafter):
    """An oracle whose rounds arrive unless `is_late(round id)`; what it was asked is kept."""

    def __init__(self, toy: LoadedTarget, is_late: Callable[[int], bool]) -> None:
        answer = plain_answer(toy.target, toy.tokenizer, request(), 0, 0).token_ids
        super().__init__(
            lambda context, count: answer[len(context) - len(PROMPT) :][:count],
            toy.target.info.vocab_size,
        )
        self._is_late = is_late
        self.answer = answer
        self.is_up = True
        self.expected_ms = 0.0
        self.rounds: dict[int, list[DraftTree]] = {}
        self.num_asked = 0
        self.waits: list[float] = []
        self.dropped: list[int] = []

    def ask(self, rows: Sequence[DraftRow]) -> int:
        self.num_asked += 1
        self.rounds[self.num_asked] = self.propose(rows)
        return self.num_asked

    def poll(self, round_id: int, timeout_s: float) -> list[DraftTree] | None:
        self.waits.append(timeout_s)
        return None if self._is_late(round_id) else self.rounds.pop(round_id)

    def drop(self, round_id: int) -> None:
        self.dropped.append(round_id)
        del self.rounds[round_id]


def never_late(round_id: int) -> bool:
    return False


def always_late(round_id: int) -> bool:
    return True


def request() -> GenerationRequest:
    return GenerationRequest(PROMPT, SamplingParams(max_tokens=24, ignore_eos=True))


@pytest.mark.parametrize("is_late", [never_late, lambda n: n % 2 == 0, always_late])
def test_late_rounds_cost_their_draft_only(
    toy: LoadedTarget, make_core: MakeCore, is_late: Callable[[int], bool]
) -> None:
    drafter = DistantOracle(toy, is_late)
    core = make_core({"oracle": drafter}, hold_ms=5)
    ((done,),) = run(core, request())
    assert done.token_ids == drafter.answer
    late = [n for n in range(1, drafter.num_asked + 1) if is_late(n)]
    assert drafter.dropped == late
    assert core.drafting.hold.num_late == len(late)
    assert drafter.rounds == {}, "a round was neither taken nor dropped"
    assert (done.usage.arm("oracle").drafted > 0) is (len(late) < drafter.num_asked)


def test_an_arm_that_is_down_is_not_asked(toy: LoadedTarget, make_core: MakeCore) -> None:
    drafter = DistantOracle(toy, never_late)
    drafter.is_up = False
    core = make_core({"oracle": drafter})
    ((done,),) = run(core, request())
    assert done.token_ids == drafter.answer
    assert drafter.num_asked == 0
    drafter.is_up = True
    ((done,),) = run(core, request())
    assert done.usage.arm("oracle").drafted > 0


def test_only_what_is_predicted_in_time_is_waited_for(toy: LoadedTarget) -> None:
    soon, never = DistantOracle(toy, never_late), DistantOracle(toy, always_late)
    soon.expected_ms, never.expected_ms = 1.0, 10_000.0
    hold = Hold(lambda: 50.0)
    awaited = [Awaited(guarded(one), one.ask([])) for one in (never, soon)]
    started = time.perf_counter()
    hold.collect(awaited)
    assert time.perf_counter() - started < 1.0
    assert 0 < soon.waits[0] <= 0.05
    assert never.waits == [0.0]
    assert awaited[1].trees == []
    assert awaited[0].trees is None
    assert awaited[0].waited_ms == 10_000.0, "what it would have cost is what the router learns"


def test_what_is_predicted_to_be_late_is_waited_for_now_and_then(toy: LoadedTarget) -> None:
    """Else a drafter that shares the forward's cores is late for ever, once it was."""
    oracle = DistantOracle(toy, always_late)
    oracle.expected_ms = 1e6
    drafter, hold = guarded(oracle), Hold(lambda: 5.0)
    for _ in range(40):
        hold.collect([Awaited(drafter, oracle.ask([]))])
    assert [n for n, wait_s in enumerate(oracle.waits) if wait_s > 0] == [4, 13, 30]
