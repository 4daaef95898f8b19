"""lambda, the plain rate, and the fall-back that they decide."""

from __future__ import annotations

import numpy as np
import pytest

from whiflash.core.costs import CostCurve
from whiflash.core.rows import StepCost
from whiflash.routing.costs import CostModel
from whiflash.routing.fallback import FallBack
from whiflash.routing.plain_steps import PlainSteps
from whiflash.routing.price import Price, load_bucket
from whiflash.routing.slow_average import SlowRatio

CURVE = CostCurve(((1, 20.0), (64, 83.0)))


def plain(rows: int, ms: float, decode_only: bool = True) -> StepCost:
    return StepCost(rows, ms, {}, ms, rows, True, decode_only)


def drafting(rows: int, nodes: int, emitted: int, ms: float) -> StepCost:
    return StepCost(rows + nodes, ms, {}, ms, emitted, False, True)


def test_units_are_tokens_per_millisecond():
    price = Price(CostModel(CURVE))
    assert price.plain_rate(1) == pytest.approx(1 / 20.0)
    assert price.at(1) == pytest.approx(1 / 20.0)
    told = price.describe()["1"]
    assert told["tokens_per_s"] == pytest.approx(50.0)


def test_price_is_emitted_over_whole_time_in_the_long_run():
    price = Price(CostModel(CURVE))
    for _ in range(600):
        price.observe(drafting(4, 8, 12, 40.0), 4)
    assert price.at(4) == pytest.approx(12 / 40.0, rel=0.01)
    assert price.relative(4) == pytest.approx((12 / 40.0) / (4 / 23.0), rel=0.01)


def test_price_moves_slowly():
    price = Price(CostModel(CURVE))
    for _ in range(200):
        price.observe(drafting(1, 4, 2, 24.0), 1)
    before = price.at(1)
    price.observe(drafting(1, 4, 5, 24.0), 1)
    assert price.at(1) < 1.05 * before
    price.observe(drafting(1, 4, 1, 24000.0), 1)
    assert price.at(1) > 0.9 * before


def test_the_plain_rate_is_measured_not_believed():
    """Plain steps cost 1.5 times what the cost model says."""
    price = Price(CostModel(CURVE))
    for _ in range(60):
        price.observe(plain(4, 1.5 * 23.0), 4)
    assert price.plain_rate(4) == pytest.approx(4 / (1.5 * 23.0), rel=0.02)
    assert price.relative(4) == pytest.approx(1.0, abs=0.05)


def test_batch_sizes_of_one_bucket_are_compared_fairly():
    """Plain steps at 5 rows, drafting steps at 8: neither rate is taken for the other."""
    price = Price(CostModel(CURVE))
    for _ in range(300):
        price.observe(plain(5, 24.0), 5)
        price.observe(drafting(8, 8, 8, 27.0), 8)
    assert price.relative(8) == pytest.approx(1.0, rel=0.02)
    assert price.at(8) == pytest.approx(8 / 27.0, rel=0.02)


def test_prefill_steps_and_other_loads_do_not_count():
    price = Price(CostModel(CURVE))
    for _ in range(100):
        price.observe(plain(1, 500.0, decode_only=False), 1)
        price.observe(drafting(16, 16, 64, 60.0), 16)
    assert price.at(1) == pytest.approx(1 / 20.0)


def test_load_buckets():
    assert [load_bucket(n) for n in (0, 1, 2, 3, 4, 5, 8, 9, 16, 17)] == [
        0,
        0,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
        5,
    ]


def test_slow_ratio_forgets_its_prior_and_its_past():
    ratio = SlowRatio(window=20, prior=1.0)
    assert ratio.value == 1.0
    for value in (2.0, 4.0):
        for _ in range(200):
            ratio.add(value * 3.0, 3.0)
        assert ratio.value == pytest.approx(value, rel=0.01)


def losing_steps(fallback: FallBack, price: Price, count: int, emitted: int) -> list[bool]:
    """The router's reaction: plain steps while the fall-back is active."""
    active = []
    for _ in range(count):
        active.append(fallback.is_active(2))
        step = plain(2, 21.0) if active[-1] else drafting(2, 10, emitted, 42.0)
        price.observe(step, 2)
        fallback.observe(step, 2)
        fallback.check_integrity()
    return active


def test_drafting_that_loses_is_stopped_and_always_retried():
    """TensorRT-LLM PR #12905: an acceptance threshold turned speculation off for good."""
    price = Price(CostModel(CURVE))
    active = losing_steps(FallBack(price), price, 3000, emitted=3)
    assert active.index(True) <= 64
    assert np.mean(active[500:]) > 0.85
    retries = np.flatnonzero(np.diff(np.array(active).astype(int)) == -1)
    assert len(retries) > 8
    assert max(np.diff(retries)) <= 256 + 64


def test_recovers_when_drafting_pays_again():
    price = Price(CostModel(CURVE))
    fallback = FallBack(price)
    assert any(losing_steps(fallback, price, 1000, emitted=3))
    active = losing_steps(fallback, price, 1000, emitted=8)
    assert not any(active[300:])


def test_a_draft_that_breaks_even_is_left_alone():
    price = Price(CostModel(CURVE))
    assert not any(losing_steps(FallBack(price), price, 1000, emitted=4))


def test_one_load_in_trouble_leaves_the_others_alone():
    price = Price(CostModel(CURVE))
    fallback = FallBack(price)
    losing_steps(fallback, price, 100, emitted=3)
    assert fallback.is_active(2)
    assert not fallback.is_active(1)
    assert not fallback.is_active(8)


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_the_asked_share_of_steps_is_plain(share):
    schedule = PlainSteps(share, seed=1)
    forced = 0
    for _ in range(20000):
        due = schedule.force(8)
        forced += due
        schedule.observe(plain(8, 20.0) if due else drafting(8, 4, 10, 25.0), 8)
    assert forced / 20000 == pytest.approx(share, rel=0.15)


def test_steps_that_are_plain_anyway_are_not_forced():
    schedule = PlainSteps(0.01)
    for i in range(5000):
        assert not schedule.force(4)
        schedule.observe(plain(4, 20.0) if i % 20 == 0 else drafting(4, 4, 8, 25.0), 4)


def test_share_zero_forces_nothing():
    schedule = PlainSteps(0.0)
    for _ in range(1000):
        assert not schedule.force(1)
        schedule.observe(drafting(1, 4, 2, 25.0), 1)
