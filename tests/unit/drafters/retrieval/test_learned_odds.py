"""Odds converge to what comes true, censor what the text did not reach, and never give up."""

from __future__ import annotations

import numpy as np
import pytest

from whiflash.drafters.retrieval.odds import FLOOR, SEEN_ONCE, LearnedOdds
from whiflash.drafters.retrieval.tree import RetrievedTree
from whiflash.trajectories.index import layout
from whiflash.trajectories.index.fringe import cell_of


def tree(tokens: list[int], parents: list[int], cells: list[int], firsts: list[list[int]]):
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    row = lambda numbers: np.array(numbers, np.int32)  # noqa: E731
    return RetrievedTree(
        row(tokens), row(parents), row(depths[1:]), np.ones(len(tokens), np.float32), "live",
        row(cells), row(firsts).reshape(-1, 2),
    )  # fmt: skip


def changed(odds: LearnedOdds, before: np.ndarray) -> dict[int, bool]:
    """Cell -> whether it rose."""
    return {int(c): bool(odds.odds[c] > before[c]) for c in np.flatnonzero(odds.odds != before)}


@pytest.mark.parametrize(
    ("followed", "scored"),
    [
        ((7, 8, 9), {10: True, 11: True, 12: True, 13: False}),
        ((7, 8), {10: True, 11: True, 13: False}),  # the turn ended: the last node is censored
        ((7, 1), {10: True, 11: False, 13: False}),  # behind a rejection: censored
        ((5, 6, 9), {10: False, 13: True, 14: True}),  # the other branch
        ((1, 8, 9), {10: False, 13: False}),
        ((), {}),
    ],
)
def test_only_nodes_whose_parent_came_true_are_scored(
    followed: tuple[int, ...], scored: dict[int, bool]
) -> None:
    odds = LearnedOdds()
    before = odds.odds.copy()
    odds.learn(tree([7, 5, 8, 6, 9], [0, 0, 1, 2, 3], [10, 13, 11, 14, 12], []), followed)
    assert changed(odds, before) == scored
    assert odds.num_outcomes == len(scored)
    odds.check_integrity()


def test_the_first_nodes_of_sources_that_were_not_chosen_are_scored_once() -> None:
    odds = LearnedOdds()
    before = odds.odds.copy()
    firsts = [[7, 10], [-1, -1], [3, 400]]
    odds.learn(tree([7], [0], [10], firsts), (3,))
    assert changed(odds, before) == {10: False, 400: True}
    assert odds.num_outcomes == 2


def test_odds_start_at_the_prior_and_converge() -> None:
    rng = np.random.default_rng(0)
    odds = LearnedOdds()
    cell = cell_of(layout.LIVE, 1, 1, 1, True)
    assert odds.odds[cell] == np.float32(SEEN_ONCE[0])
    for rate in (0.9, 0.2):  # and follow when the text changes
        for _ in range(1500):
            odds.learn(tree([7], [0], [cell], []), (7 if rng.random() < rate else 1,))
        assert odds.odds[cell] == pytest.approx(rate, abs=0.1)
    odds.check_integrity()


def test_no_cell_is_ever_given_up() -> None:
    odds = LearnedOdds()
    for _ in range(5000):
        odds.learn(tree([7], [0], [17], []), (1,))
    assert odds.odds[17] == np.float32(FLOOR)
    odds.check_integrity()
