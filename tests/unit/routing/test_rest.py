"""Rows that draft nothing are looked at less often, and are awake again at once when they do."""

from __future__ import annotations

import pytest

from whiflash.core.rows import NONE, StepCost
from whiflash.routing.rest import Rests


def step(rows: int, looked: int, look_ms: float, total_ms: float) -> StepCost:
    return StepCost(
        rows, total_ms, {}, total_ms, rows, True, True, num_looked=looked, look_ms=look_ms
    )


def learned(look_share: float, rows: int = 8) -> Rests:
    """Looking at all rows takes `look_share` of the step."""
    rests = Rests()
    for _ in range(200):
        rests.observe(step(rows, rows, 100.0 * look_share, 100.0), rows)
    return rests


@pytest.mark.parametrize(
    ("look_share", "rounds"), [(0.0, 0), (0.009, 0), (0.018, 1), (0.055, 5), (0.9, 16)]
)
def test_rests_are_as_long_as_looking_is_dear(look_share: float, rounds: int) -> None:
    assert learned(look_share).rest_rounds(8) == rounds


def test_a_look_at_few_rows_is_charged_to_these() -> None:
    rests = Rests()
    for _ in range(200):
        rests.observe(step(8, 1, 0.55, 100.0), 8)  # 0.55 of the row's 12.5 ms
    assert rests.rest_rounds(8) == 4


def test_loads_are_measured_apart() -> None:
    rests = learned(0.055, rows=32)
    for _ in range(200):
        rests.observe(step(1, 1, 0.001, 30.0), 1)
    assert (rests.rest_rounds(1), rests.rest_rounds(32)) == (0, 5)


def looked_at(rests: Rests, finds: list[bool]) -> list[bool]:
    """Rounds of one sequence: finds[i] tells whether a look at round i would end in a draft."""
    is_awake, looks = True, []
    for has_found in finds:
        looks.append(is_awake)
        is_awake = rests.wakes(0, has_found if is_awake else None, 8)
    return looks


def test_a_fruitless_row_is_looked_at_every_sixth_round() -> None:
    looks = looked_at(learned(0.055), [False] * 60)
    assert looks[:6] == [True] * 6  # patience
    assert looks[6:12] == [False] * 5 + [True]
    assert sum(looks[6:]) == 9


def test_the_first_draft_ends_the_rest() -> None:
    looks = looked_at(learned(0.055), [False] * 20 + [True] * 20)
    first = looks.index(True, 20)
    assert first <= 25
    assert all(looks[first:])


def test_a_forgotten_row_starts_anew() -> None:
    rests = learned(0.055)
    looked_at(rests, [False] * 10)
    rests.forget(0)
    assert looked_at(rests, [False] * 6) == [True] * 6


def test_dear_looks_cost_a_bounded_share_of_text_that_drafts_nothing(world, text) -> None:
    """Signals and proposals of 32 rows once took a sixth of a step that drafted nothing."""
    texts = [text["hostile"]] * 32
    none = world(texts, "static", arm=NONE, plain_share=0.0, look_ms=0.0).run(40).goodput
    routed = world(texts, look_ms=0.15).run(600)
    assert routed.goodput >= 0.98 * none
    assert routed.looks < 0.3 * 600 * 32
