"""Learned factors: backed, forgetting, fading, and never shared between namespaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.routing.factor_table import (
    NUM_RANK_BUCKETS,
    Cell,
    FactorTable,
    bucket_of,
    rank_buckets,
)

HERE = Cell("n", "a", (3, 1))
ELSEWHERE = Cell("n", "a", (0, 4))


def table(**options) -> FactorTable:
    defaults = {"window": 50, "prior_tokens": 4.0, "fade_rounds": 1000, "max_namespaces": 4,
                "max_step": 0.5}  # fmt: skip
    return FactorTable(**(defaults | options))


def teach(learner: FactorTable, cell: Cell, ratio: float, times: int = 100) -> None:
    expected = np.full((1, NUM_RANK_BUCKETS), 0.5)
    for _ in range(times):
        learner.factors([cell])
        learner.observe([cell], expected, ratio * expected)
    learner.check_integrity()


def factor(learner: FactorTable, cell: Cell) -> float:
    return float(learner.factors([cell])[0, 0])


def test_unseen_cells_believe_the_draft():
    assert table().factors([HERE, ELSEWHERE]).tolist() == [[1.0] * NUM_RANK_BUCKETS] * 2


def test_learns_the_ratio_and_relearns_it():
    learner = table()
    teach(learner, HERE, 0.3)
    assert factor(learner, HERE) == pytest.approx(0.3, abs=0.08)
    teach(learner, HERE, 1.4)
    assert factor(learner, HERE) == pytest.approx(1.4, abs=0.15)


def test_a_bucket_without_evidence_follows_its_arm():
    learner = table()
    teach(learner, HERE, 0.3)
    assert factor(learner, ELSEWHERE) == pytest.approx(factor(learner, HERE), abs=0.1)
    assert factor(learner, Cell("n", "b", HERE.bucket)) == 1.0


def test_namespaces_share_nothing():
    learner = table()
    teach(learner, HERE, 0.1)
    assert factor(learner, HERE._replace(namespace="other")) == 1.0


def test_evidence_that_is_not_refreshed_fades_to_the_prior():
    learner = table()
    teach(learner, HERE, 0.0)
    assert factor(learner, HERE) < 0.2
    for _ in range(200):
        learner.factors([ELSEWHERE._replace(namespace="other")] * 100)
    assert factor(learner, HERE) > 0.95


def test_ranks_are_learned_apart():
    learner = table()
    expected = np.full((1, NUM_RANK_BUCKETS), 0.5)
    seen = expected.copy()
    seen[0, 3:] = 0.0
    for _ in range(100):
        learner.observe([HERE], expected, seen)
    first, *_, last = learner.factors([HERE])[0]
    assert first == pytest.approx(1.0)
    assert last < 0.2


@given(
    st.lists(st.floats(0.0, 8.0), min_size=1, max_size=40),
    st.lists(st.floats(0.0, 8.0), min_size=1, max_size=40),
    st.floats(0.05, 2.0),
)
@settings(max_examples=60)
def test_one_observation_moves_a_factor_by_a_bounded_step(expected, accepted, max_step):
    """Up or down, whatever it claims to be: a row of the arm's and one of the bucket's move."""
    learner = table(max_step=max_step)
    for told, came in zip(expected, accepted, strict=False):
        before = factor(learner, HERE)
        size = np.full((1, NUM_RANK_BUCKETS), 1.0)
        learner.observe([HERE], told * size, came * size)
        after = factor(learner, HERE)
        # What is forgotten at the same time moves it a little towards what backs it.
        bound = (1.0 + max_step) ** 2 * 1.05
        assert before / bound <= after <= before * bound
    learner.check_integrity()


def test_observing_in_one_batch_or_one_by_one_is_nearly_the_same():
    together, apart = table(), table()
    expected = np.full((8, NUM_RANK_BUCKETS), 0.5)
    seen = expected * np.linspace(0.2, 0.9, 8)[:, None]
    together.observe([HERE] * 8, expected, seen)
    for i in range(8):
        apart.observe([HERE], expected[i : i + 1], seen[i : i + 1])
    assert factor(together, HERE) == pytest.approx(factor(apart, HERE), rel=0.05)


def test_a_weight_of_three_is_three_observations():
    heavy, often = table(), table()
    half = np.full((3, NUM_RANK_BUCKETS), 0.5)
    heavy.observe([HERE], half[:1], 0.2 * half[:1], np.array([3.0]))
    often.observe([HERE] * 3, half, 0.2 * half)
    assert factor(heavy, HERE) == pytest.approx(factor(often, HERE), rel=1e-12)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=60))
@settings(max_examples=50, deadline=None)
def test_namespaces_and_rows_stay_bounded_and_are_reused(visits):
    learner = table(max_namespaces=3)
    ones = np.ones((1, NUM_RANK_BUCKETS))
    for space, bucket in visits:
        learner.observe([Cell(str(space), "a", (bucket, 0))], ones, ones)
        learner.check_integrity()
    assert learner.num_namespaces <= 3


def test_buckets(row):
    assert bucket_of(row(matched=0, entropy=0.0)) == (0, 0)
    assert bucket_of(row(matched=8, entropy=0.3)) == (4, 1)
    assert bucket_of(row(matched=999, entropy=9.0)) == (6, 4)
    assert bucket_of(row(entropy=float("nan"))) == (4, 4)
    assert rank_buckets(20).tolist() == [0, 1, 2, 2, *[3] * 4, *[4] * 8, *[5] * 4]
