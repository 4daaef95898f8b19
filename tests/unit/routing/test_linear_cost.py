"""A cost fixed + per_row * rows, learned online."""

from __future__ import annotations

import numpy as np
import pytest

from whiflash.routing.linear_cost import LinearCost


def test_recovers_both_parts_from_noisy_calls():
    cost, random = LinearCost(), np.random.default_rng(0)
    for _ in range(400):
        rows = int(random.integers(1, 33))
        cost.observe(rows, (4.0 + 0.25 * rows) * float(random.lognormal(0, 0.05)))
    assert cost.fixed_ms == pytest.approx(4.0, rel=0.1)
    assert cost.at(32) == pytest.approx(12.0, rel=0.05)


def test_one_row_count_is_all_fixed():
    cost = LinearCost()
    for _ in range(20):
        cost.observe(8, 3.0)
    assert (cost.at(8), cost.at(1)) == (pytest.approx(3.0), pytest.approx(3.0))


def test_a_hiccup_counts_at_most_three_times_the_prediction():
    cost = LinearCost()
    for _ in range(50):
        cost.observe(4, 2.0)
    cost.observe(4, 1000.0)
    assert cost.at(4) < 2.2


def test_follows_a_lasting_change():
    cost = LinearCost(window=50)
    for ms in [2.0] * 100 + [6.0] * 200:
        cost.observe(4, ms)
    assert cost.at(4) == pytest.approx(6.0, rel=0.05)


def test_parts_are_never_negative():
    cost = LinearCost()
    for rows, ms in [(1, 5.0), (2, 4.0), (3, 1.0), (30, 0.5), (1, 0.0)]:
        cost.observe(rows, ms)
        assert cost.fixed_ms >= 0.0
        assert cost.per_row_ms >= 0.0
    steep = LinearCost()
    for rows in (10, 20, 30):
        steep.observe(rows, 1.0 * rows - 5.0)
    assert steep.fixed_ms >= -1e-12
    assert steep.at(0) == 0.0


def test_nonsense_is_ignored():
    cost = LinearCost(1.0, 0.5)
    cost.observe(0, 3.0)
    cost.observe(4, -1.0)
    assert (cost.num_observed, cost.at(2)) == (0, 2.0)


def test_a_first_count_that_is_large_does_not_make_small_calls_dear():
    """One catch-up of a prompt took 60 ms: as a fixed cost it would keep the arm off for good."""
    cost = LinearCost(begins_large=True)
    cost.observe(400, 60.0)
    assert cost.at(1) == pytest.approx(0.3, rel=0.01)
    assert cost.at(400) == pytest.approx(60.0)
    cost.observe(1, 2.0)
    assert cost.at(1) == pytest.approx(2.0)
    assert cost.at(400) == pytest.approx(60.0)


def test_a_first_count_of_one_is_all_fixed():
    cost = LinearCost(begins_large=True)
    cost.observe(1, 2.0)
    assert cost.at(400) == pytest.approx(2.0)
