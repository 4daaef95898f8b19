"""Paired timings: order, ratios, and a lower bound that keeps its promise."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.bench.timing import alternate, lower_rank, paired_ratio, timed


def test_runs_alternate_in_abba_order() -> None:
    order: list[str] = []
    runs = {name: (lambda name=name: order.append(name)) for name in ("a", "b")}
    samples = alternate(runs, 3)
    assert "".join(order) == "abbaab"
    assert {name: len(values) for name, values in samples.items()} == {"a": 3, "b": 3}


def test_timed_returns_the_result() -> None:
    sample = timed(lambda: 42)
    assert sample.result == 42
    assert sample.seconds >= 0


def test_ratio_is_the_speed_up_of_ours() -> None:
    ratio = paired_ratio([2.0, 4.0, 9.0], [1.0, 2.0, 3.0])
    assert ratio.median == 2.0
    assert ratio.num_pairs == 3
    assert ratio.lower is None, "three pairs cannot bound a median with 95 %"


def test_unpaired_times_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio([1.0, 2.0], [1.0])


@pytest.mark.parametrize(("count", "rank"), [(0, None), (4, None), (5, 1), (7, 1), (8, 2), (20, 6)])
def test_lower_rank_of_the_sign_test(count: int, rank: int | None) -> None:
    assert lower_rank(count, 0.95) == rank


@given(st.integers(1, 60))
def test_lower_rank_is_the_largest_that_keeps_the_confidence(count: int) -> None:
    rank = lower_rank(count, 0.95) or 0
    miss = [sum(math.comb(count, j) for j in range(k)) / 2**count for k in range(count + 1)]
    assert rank == max(k for k in range(count + 1) if miss[k] <= 0.05)


def test_lower_bound_holds_in_95_of_100_samples() -> None:
    """Ratios with true median 1: the bound may lie above it in at most 5 % of samples."""
    source = random.Random(7)
    trials, above = 2000, 0
    for _ in range(trials):
        ours = [1.0] * 9
        baseline = [math.exp(source.gauss(0, 0.3)) for _ in ours]
        lower = paired_ratio(baseline, ours).lower
        assert lower is not None
        above += lower > 1
    assert above / trials < 0.05
