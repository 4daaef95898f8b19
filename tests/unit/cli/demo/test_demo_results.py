"""What the passes of the demo come to, and when their text counts as the same."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from whiflash.cli.demo.passes import (
    COLD,
    FILE_STAGES,
    FIRST_PASS,
    REPEATED,
    RESTARTED,
    SECOND_PASS,
    SHARED_STAGES,
    TEACHING,
    Extent,
)
from whiflash.cli.demo.results import PassResult, is_same_text
from whiflash.core.usage import ArmUsage

ONE = {"stock": ((1, 2, 3), (4, 5))}
RESULT = PassResult(
    "cold", "other fillings", 7, 5, 4, {"none": ArmUsage(rounds=3, emitted=3),
    "retrieval": ArmUsage(rounds=1, emitted=5, accepted=4)}, 100.0, 250.0, 1, ONE, dict(ONE),
)  # fmt: skip


def test_figures_of_a_pass() -> None:
    assert RESULT.ratio == 2.5
    assert RESULT.accepted_length == 2.0
    record = RESULT.record()
    assert (record["ratio"], record["accepted_length"], record["same_text"]) == (2.5, 2.0, True)
    assert record["arms"]["retrieval"] == {
        "rounds": 1, "emitted": 5, "accepted": 4, "accepted_length": 5.0
    }  # fmt: skip
    assert replace(RESULT, arms={}).accepted_length == 0.0


def test_a_pass_without_a_twin_has_no_ratio() -> None:
    alone = replace(RESULT, twin_texts={})
    assert alone.ratio is None
    assert (alone.record()["ratio"], alone.record()["twin_decode_ms"]) == (None, None)
    assert alone.is_same_text
    assert not is_same_text([alone, replace(RESULT, texts={"stock": ()}, twin_texts={"stock": ()})])


def test_a_result_travels_between_processes() -> None:
    assert pickle.loads(pickle.dumps(RESULT)) == RESULT


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (RESULT, True),
        (replace(RESULT, twin_texts={"stock": ((1, 2, 3), (4, 6))}), False),
        (replace(RESULT, texts={"stock": ((9,),)}, twin_texts={"stock": ((9,),)}), False),
        (replace(RESULT, texts={"rooms": ((9,),)}, twin_texts={"rooms": ((9,),)}), True),
    ],
)
def test_text_is_the_same_as_the_twins_and_as_in_other_passes(
    other: PassResult, is_same: bool
) -> None:
    assert is_same_text([RESULT, other]) is is_same


def test_only_first_fillings_teach_what_warm_passes_draft_from() -> None:
    for stages in (FILE_STAGES, SHARED_STAGES):
        plans = [plan for stage in stages for plans in stage for plan in plans]
        assert plans[:2] == [COLD, TEACHING]
        warm = [plan for plan in plans if not plan.teaches]
        assert all(not plan.is_apart for plan in warm)
        assert {p.key for p in warm if p.scenarios == FIRST_PASS} == {"identical_repeat"}
        assert [plan.key for plan in plans if plan.is_apart] == ["cold"]
        assert len({plan.key for plan in plans}) == len(plans)
    assert COLD.scenarios == RESTARTED.scenarios == SECOND_PASS


def test_passes_that_are_compared_are_the_first_of_their_process() -> None:
    """Costs and learned policies of a process are no merit of the store."""
    for stages in (FILE_STAGES, SHARED_STAGES):
        first = [plans[0] for stage in stages for plans in stage]
        later = [plan for stage in stages for plans in stage for plan in plans[1:]]
        assert later == [TEACHING]
        assert all(plan.has_twin for plan in first)
        assert not TEACHING.has_twin


def test_no_process_runs_two_passes_that_could_share_a_prefix() -> None:
    """Prefixes are found by namespace; passes of one process must be in different ones."""
    for stages in (FILE_STAGES, SHARED_STAGES):
        for plans in (plans for stage in stages for plans in stage):
            assert len({plan.is_apart for plan in plans}) == len(plans)


def test_a_shortened_pass_keeps_its_name_and_scope() -> None:
    short = Extent(num_sessions=2).shortened(REPEATED)
    assert (short.key, short.teaches, short.scenarios) == (
        REPEATED.key, False, FIRST_PASS[:2]
    )  # fmt: skip
    assert Extent().shortened(COLD) == COLD
    (one,) = Extent(num_turns=1, kind="rooms").shortened(COLD).scenarios
    assert one.kind.name == "rooms"
    assert len(one.turns) == 1
    assert Extent().stages(is_shared=True) == SHARED_STAGES
    without = Extent(has_repeat=False).stages(is_shared=False)
    assert without == FILE_STAGES[:-1]
    assert REPEATED not in [plan for stage in without for plans in stage for plan in plans]
