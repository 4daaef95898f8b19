"""Regret at one root: against the best of what was proposed there."""

from __future__ import annotations

import pytest

from whiflash.core.costs import CostCurve
from whiflash.routing.costs import CostModel
from whiflash.routing.regret import regret

COSTS = CostModel(CostCurve(((1, 10.0), (17, 14.0))), {"a": (5.0, 0.0), "b": (0.0, 0.0)})
"""0.25 ms a node; a drafts in 5 ms, b for nothing."""
RANKS = {"a": [0, 1, 2, 3], "b": [0, 3]}


def test_the_best_choice_misses_nothing():
    """a: 5 tokens in 16 ms; b: 3 in 11."""
    assert regret(COSTS, ("a", 4), RANKS, {}) == 0.0


def test_another_misses_the_difference():
    assert regret(COSTS, ("b", 4), RANKS, {}) == pytest.approx(1 - (3 / 11) / (5 / 16))
    assert regret(COSTS, ("none", 0), RANKS, {}) == pytest.approx(1 - (1 / 10) / (5 / 16))
    assert regret(COSTS, ("a", 8), RANKS, {}) == pytest.approx(1 - (5 / 17) / (5 / 16))


def test_drafting_for_nothing_is_measured_against_none():
    assert regret(COSTS, ("a", 4), {"a": [], "b": []}, {}) == pytest.approx(1 - (1 / 16) / (1 / 10))
    assert regret(COSTS, ("none", 0), {"a": [], "b": []}, {}) == 0.0
