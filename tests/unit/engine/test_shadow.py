"""Shadow proposals: made when nobody waits, from what a turn left; no text depends on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from whiflash import Engine
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.engine.core import EngineCore
from whiflash.engine.publish import Publisher
from whiflash.engine.shadow import SHADOW_ID, SHADOW_SHARE, is_drawn
from whiflash.engine.ticket import Ticket
from whiflash.obs.round_log import RoundLog, read_rounds
from whiflash.routing.policies.goodput import GoodputPolicy
from whiflash.routing.replay.log import logged_runs
from whiflash.target.load import LoadedTarget
from whiflash.testing.conversations import Conversation, converse
from whiflash.testing.engines import drain, run
from whiflash.testing.plain import plain_answer
from whiflash.testing.policies import RandomPolicy
from whiflash.testing.toy import SYMBOLS
from whiflash.testing.toy_drafters import ToyDrafters, write_toy_dflash, write_toy_eagle3
from whiflash.testing.twins import Twin
from whiflash.testing.waiting import wait_for
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.memory_log import MemoryLog

MakeCore = Callable[..., EngineCore]
ARMS = ("eagle3_chain", "ddtree")
ENDS = tuple(3 + SYMBOLS.index(symbol) for symbol in "*xu-")
PROMPT = tuple(range(3, 40))


class PlainChoice:
    """No arm is ever chosen; keeps what it is told of shadows."""

    name = "plain"

    def __init__(self) -> None:
        self.shadows: list[Outcome] = []

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        return [Prediction(fixed=(NONE, 0))] * len(rows)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learns nothing."""

    def observe_shadows(self, outcomes: Sequence[Outcome]) -> None:
        self.shadows += outcomes


@pytest.fixture(scope="module")
def toys(toy: LoadedTarget, tmp_path_factory: pytest.TempPathFactory) -> ToyDrafters:
    return ToyDrafters(tmp_path_factory.mktemp("drafters"), toy.target)


def in_spare_time(core: EngineCore) -> None:
    """A shadow proposal before and after every step, which never takes another's memory."""
    step, memory = core.step, core.arms.memory

    def stepped() -> bool:
        spare(core)
        has_worked = step()
        spare(core)
        return has_worked

    def spare(core: EngineCore) -> None:
        before, dropped = memory.held_bytes, memory.num_dropped
        core.shadows.run_one()
        assert (memory.held_bytes, memory.num_dropped) == (before, dropped)
        core.check_integrity()

    core.step = stepped  # type: ignore[method-assign]


def finish(core: EngineCore) -> None:
    """All shadow proposals that are left."""
    while core.shadows.run_one():
        core.check_integrity()
    assert not core.shadows.has_work


def request(**fields: Any) -> GenerationRequest:
    params = SamplingParams(max_tokens=60, ignore_eos=True, temperature=0.7, seed=3)
    return GenerationRequest(PROMPT, params, **fields)


def agents() -> list[Conversation]:
    """Two whose answers are long, so that memory runs out; two whose answers end in what may be a
    call, so that they park and are taken over by their next turns."""
    rng = random.Random(3)
    talks = []
    for number in range(4):
        head = tuple(rng.randrange(3, 64) for _ in range(30))
        is_long = number < 2
        params = SamplingParams(
            max_tokens=110 if is_long else 30, temperature=[0.0, 0.8][number % 2],
            ignore_eos=is_long, stop_token_ids=() if is_long else ENDS,
        )  # fmt: skip
        marker = "" if is_long else "}"
        talks.append(
            Conversation(head, number, 2 if is_long else 4, params, call_marker=marker)
        )  # fmt: skip
    return talks


def scarce(toy: LoadedTarget, drafter: Any) -> dict[str, float]:
    return {
        "memory_bytes": toy.target.cache_bytes(512),
        "draft_bytes": 384 * drafter.cache_bytes_per_token,
        "max_batch": 4,
        "prefill_chunk": 64,
        "shadow_share": 1.0,
    }


@pytest.mark.parametrize("name", ["eagle3_chain", "dflash", "ddtree", "talon"])
def test_texts_are_those_without_drafting_under_pressure(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore, name: str
) -> None:
    """Preemptions, parked turns that are taken over, draft memory that is full; and each proposal
    is what a drafter that never was away would have made."""
    drafter = toys.make(name)
    twin = Twin(drafter, toys.make(name), toy.target, window_tokens=1024)
    core = make_core({name: drafter}, RandomPolicy(random.Random(1)), **scarce(toy, drafter))
    in_spare_time(core)
    converse(core, talks := agents())
    for talk in talks:
        for ticket, done in zip(talk.tickets, talk.done, strict=True):
            want = plain_answer(toy.target, toy.tokenizer, ticket.request, 0, ticket.seed)
            assert done.token_ids == want.token_ids
    assert twin.faults == []
    counters = core.counters
    covered = {
        "shadows": counters.shadows, "denied": counters.shadows_denied,
        "preemptions": counters.preemptions, "parked hits": counters.parked_hits,
    }  # fmt: skip
    assert all(covered.values()), covered
    assert core.arms.num_failures == 0


def test_a_cancelled_turn_leaves_its_roots_and_texts_stay(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore
) -> None:
    drafters = {name: toys.make(name) for name in ARMS}
    core = make_core(drafters, RandomPolicy(random.Random(2)), shadow_share=1.0)
    gone, kept = Ticket(request(), 1), Ticket(request(), 2)
    core.submit(gone)
    core.submit(kept)
    for _ in range(12):
        core.step()
    gone.cancel()
    core.step()
    assert core.shadows.has_work
    in_spare_time(core)
    drain(core)
    finish(core)
    assert core.counters.shadows > 20
    want = plain_answer(toy.target, toy.tokenizer, kept.request, 0, kept.seed)
    assert kept.result().choices[0].token_ids == want.token_ids
    again = run(core, request(), seed=1)[0][0]
    want = plain_answer(toy.target, toy.tokenizer, request(), 0, 1)
    assert again.token_ids == want.token_ids


def test_draft_memory_that_is_full_means_no_shadow(toys: ToyDrafters, make_core: MakeCore) -> None:
    core = make_core(
        {"dflash": toys.make("dflash")}, PlainChoice(), draft_bytes=1, shadow_share=1.0
    )
    run(core, request())
    finish(core)
    assert core.counters.shadows == 0
    assert core.counters.shadows_denied > 20
    assert core.arms.memory.num_dropped == core.arms.memory.num_denied == 0


def test_roots_go_with_the_kv_of_their_turn(toys: ToyDrafters, make_core: MakeCore) -> None:
    core = make_core({"dflash": toys.make("dflash")}, PlainChoice(), shadow_share=1.0)
    run(core, request())
    assert core.shadows.has_work
    core.admission.prefixes.clear()
    assert not core.shadows.run_one()
    assert core.counters.shadows == 0


def test_the_text_scores_them_for_policy_and_log(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore, tmp_path: Path
) -> None:
    policy = PlainChoice()
    drafters: dict[str, Any] = {name: toys.make(name) for name in ARMS}
    with closing(TrajectoryIndexes(MemoryLog(), 8 << 20)) as indexes:
        drafters["retrieval"] = RetrievalDrafter(indexes)
        core = make_core(drafters, policy, shadow_share=1.0)
        core._publisher = core.shadows._publisher = publisher = Publisher(
            "toy", None, RoundLog(tmp_path / "rounds.zst")
        )
        publisher.begin_log(toy.target.verify_curve, drafters)
        (answer,) = run(core, request())[0]
        finish(core)
    publisher.close()
    told = {(len(o.row.arms), o.choice.arm, o.propensity) for o in policy.shadows}
    assert told == {(4, arm, 1.0) for arm in ARMS}
    ids = (*PROMPT, *answer.token_ids)
    (run_logged,) = logged_runs(read_rounds(tmp_path / "rounds.zst"))
    (turn,) = run_logged.turns
    known = dict.fromkeys(ARMS, 0)
    for position, root in turn.roots.items():
        for arm in ARMS:
            found = root.known(arm)
            if found is not None:
                known[arm] += 1
                assert found.accepted(99) <= len(ids) - 1 - position
    assert min(known.values()) > 0.9 * (len(answer.token_ids) - 2), known
    records = [r for r in read_rounds(tmp_path / "rounds.zst") if r["kind"] == "shadow"]
    missed = [r["regret"] for r in records if r["regret"] is not None]
    assert {r["propensity"] for r in records} == {1.0}
    assert len(missed) == core.counters.regret_roots > 30
    assert sum(missed) == pytest.approx(core.counters.regret, abs=1e-2)
    assert 0.0 <= min(missed) <= max(missed) < 1.0
    accepted = [o.accepted for o in policy.shadows if not o.ended]
    assert sum(accepted) > 0, "nothing ever came true"


def test_goodput_learns_of_an_arm_without_verifying_it(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore
) -> None:
    drafters = {name: toys.make(name) for name in ARMS}
    core = make_core(drafters, shadow_share=1.0, policy="goodput")
    policy = core._router.policy
    assert isinstance(policy, GoodputPolicy)
    policy.observe = lambda outcomes: None  # type: ignore[method-assign]  # noqa: ARG005
    run(core, request())
    assert policy._table.num_namespaces == 0
    finish(core)
    assert policy._table.num_namespaces == 1


def test_rows_that_asked_for_an_arm_are_left_out(toys: ToyDrafters, make_core: MakeCore) -> None:
    core = make_core({name: toys.make(name) for name in ARMS}, "static", shadow_share=1.0)
    run(core, request(drafter="ddtree"), request(drafter=NONE))
    assert not core.shadows.has_work


def test_the_same_share_of_roots_is_drawn_in_every_run() -> None:
    drawn = [is_drawn(sequence, at, SHADOW_SHARE) for sequence in range(1, 41) for at in range(500)]
    assert sum(drawn) == pytest.approx(len(drawn) * SHADOW_SHARE, rel=0.1)
    assert drawn[:500] == [is_drawn(1, at, SHADOW_SHARE) for at in range(500)]
    assert drawn[:500] != drawn[500:1000]
    assert not any(is_drawn(1, at, 0.0) for at in range(500))
    assert all(is_drawn(1, at, 1.0) for at in range(500))


def test_an_engine_makes_them_while_it_has_nothing_to_do(toy_folder: Path, tmp_path: Path) -> None:
    arms = (
        f"eagle3:{write_toy_eagle3(tmp_path / 'e')},boundaries=1+2",
        f"dflash:{write_toy_dflash(tmp_path / 'd')}",
    )
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    with Engine(model=str(toy_folder), dtype="float64", memory="64MiB", drafters=arms) as engine:
        shadows = engine.core.shadows
        shadows._share = 1.0
        text = engine.generate("the cat sat on", params).text
        wait_for(lambda: engine.core.counters.shadows > 3, 30.0)
        assert engine.generate("the cat sat on", params).text == text
        assert all(d.absorbed(SHADOW_ID) == 0 for d in engine.core.arms.tap_drafters.values())
