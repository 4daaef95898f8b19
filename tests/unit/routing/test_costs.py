"""The cost model: the measured curve, corrected online and hard to mislead."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from whiflash.core.costs import CostCurve
from whiflash.core.rows import StepCost
from whiflash.routing.costs import CostModel

CURVE = CostCurve(((1, 30.0), (8, 32.0), (16, 36.0), (32, 44.0), (64, 80.0)))


def step(tokens: int, verify: float, draft: float = 0.0, other: float = 0.0) -> StepCost:
    total = verify + draft + other
    return StepCost(tokens, verify, {"a": draft} if draft else {}, total, tokens, True, True)


def test_starts_as_measured():
    costs = CostModel(CURVE)
    for tokens in (1, 5, 8, 40, 64, 100):
        assert costs.verify_ms(tokens) == pytest.approx(CURVE.at(tokens))
    assert costs.verify_table(8, 9).tolist() == pytest.approx([CURVE.at(t) for t in range(8, 17)])


def test_follows_a_machine_that_became_slower_everywhere():
    """Buckets that are not visited must move too, or they would look cheap."""
    costs, random = CostModel(CURVE), np.random.default_rng(0)
    for _ in range(400):
        tokens = int(random.integers(1, 9))
        costs.observe(step(tokens, 1.6 * CURVE.at(tokens) * random.lognormal(0, 0.05)), tokens)
    assert costs.verify_ms(4) == pytest.approx(1.6 * CURVE.at(4), rel=0.06)
    assert costs.verify_ms(32) > 1.25 * CURVE.at(32)
    costs.check_integrity()


def test_learns_a_bucket_that_the_curve_had_wrong():
    costs, random = CostModel(CURVE), np.random.default_rng(0)
    for _ in range(800):
        tokens = int(random.choice([1, 16]))
        true = CURVE.at(tokens) * (1.5 if tokens == 16 else 1.0)
        costs.observe(step(tokens, true * random.lognormal(0, 0.05)), tokens)
    assert costs.verify_ms(16) / costs.verify_ms(1) == pytest.approx(1.5 * 36 / 30, rel=0.07)


@pytest.mark.parametrize("factor", [1000.0, 1e-6])
def test_one_wild_measurement_moves_little(factor):
    costs = CostModel(CURVE)
    costs.observe(step(8, 32.0 * factor), 8)
    assert costs.verify_ms(8) == pytest.approx(32.0, rel=0.03)


def test_never_falls_with_tokens():
    dip = CostModel(CostCurve(((1, 30.0), (2, 28.0), (4, 33.0))))
    assert dip.verify_ms(2) == 30.0
    for tokens in (1, 2, 3, 4) * 20:
        dip.observe(step(tokens, 40.0 - 5.0 * tokens), tokens)
    assert np.all(np.diff(dip.verify_table(1, 40)) >= 0.0)
    dip.check_integrity()


def test_single_point_curves_and_far_extrapolation():
    flat = CostModel(CostCurve(((1, 5.0),)))
    flat.observe(step(3, 6.0), 3)
    assert flat.verify_ms(5000) == pytest.approx(flat.verify_ms(1))
    assert CostModel(CURVE).verify_ms(4000) == pytest.approx(CURVE.at(4000))


def test_draft_and_other_costs_are_measured_apart():
    costs = CostModel(CURVE)
    assert costs.draft_ms("a", 4) == 0.0
    for rows in (2, 8) * 40:
        costs.observe(
            step(rows, CURVE.at(rows), draft=1.0 + 0.5 * rows, other=2.0), rows, {"a": rows}
        )
    assert costs.draft_ms("a", 4) == pytest.approx(3.0, rel=0.02)
    assert costs.other_ms(4) == pytest.approx(2.0, rel=0.02)
    assert costs.plain_ms(8) == pytest.approx(CURVE.at(8) + 2.0, rel=0.02)


def test_known_draft_costs_count_from_the_start():
    assert CostModel(CURVE, {"a": (3.0, 0.5)}).draft_ms("a", 2) == 4.0


def test_description_can_be_exported():
    costs = CostModel(CURVE, {"a": (3.0, 0.5)})
    costs.observe(step(8, 33.0, draft=2.0), 8, {"a": 1})
    told = json.loads(json.dumps(costs.describe()))
    assert told["verify_at_load_ms"]["64"] == 80.0
    assert told["draft_ms"]["a"]["observed"] == 1
    assert told["observed"] == 1


def test_catch_up_is_learned_apart_from_drafting_and_is_no_other_cost():
    """One call of 1 ms plus 10 us a token: the fixed part goes with every draft, the rest with the
    tokens."""
    costs = CostModel(CURVE)
    for round_number in range(60):
        tokens = (4, 40, 400)[round_number % 3]
        catch_up_ms = 1.0 + 0.01 * tokens
        total = 30.0 + 2.0 + catch_up_ms + 0.5
        costs.observe(
            StepCost(1, 30.0, {"a": 2.0}, total, 1, False, True, {"a": (tokens, catch_up_ms)}), 1,
            {"a": 1},
        )  # fmt: skip
    assert costs.catch_up_ms("a", 1000) == pytest.approx(10.0, rel=0.02)
    assert costs.draft_ms("a", 1) == pytest.approx(3.0, rel=0.02)
    assert costs.other_ms(1) == pytest.approx(0.5, rel=0.05)
    assert costs.catch_up_ms("b", 1000) == 0.0


def test_other_threads_may_ask_while_it_learns():
    """Plan and metrics do; both rebuilding the table at once once stopped the engine."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            for _ in range(60):
                costs = CostModel(CURVE)
                asked = [
                    threads.submit(lambda c=costs, s=s: [c.verify_ms(s * n) for n in range(1, 30)])
                    for s in (64, 97)
                ]
                costs.observe(step(5, 90.0), 5)
                assert all(np.isfinite(one.result()).all() for one in asked)
                costs.check_integrity()
    finally:
        sys.setswitchinterval(interval)


def test_an_arms_first_call_is_no_measure_of_the_next():
    """It loads and compiles; an arm that looked so dear would not be called again."""
    costs = CostModel(CURVE)
    costs.observe(step(1, 30.0, draft=400.0), 1, {"a": 1})
    assert costs.draft_ms("a", 1) == 0.0
    costs.observe(step(1, 30.0, draft=6.0), 1, {"a": 1})
    assert costs.draft_ms("a", 1) == pytest.approx(6.0)
