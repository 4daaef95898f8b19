"""What an arm is expected to do before it was seen."""

from __future__ import annotations

import numpy as np
import pytest

from whiflash.core.costs import CostCurve
from whiflash.core.rows import StepCost
from whiflash.routing.costs import CostModel
from whiflash.routing.prior import PriorSurvival

CURVE = CostCurve(((1, 30.0), (8, 32.0), (64, 80.0)))


def drafted(costs: CostModel, draft_ms: float, times: int = 1) -> None:
    for _ in range(times):
        step = StepCost(1, 30.0, {"a": draft_ms}, 30.0 + draft_ms, 1, False, True)
        costs.observe(step, 1, {"a": 1})


def net_gain(costs: CostModel, odds: np.ndarray) -> float:
    """Tokens over plain decoding of the best draft of a lone row."""
    extra = costs.verify_table(1, len(odds) + 1)[1:] - costs.verify_ms(1) + costs.draft_ms("a", 1)
    return float((odds.cumsum() - extra / costs.plain_ms(1)).max())


@pytest.mark.parametrize("draft_ms", [0.0, 6.0, 20.0])
def test_an_unknown_arm_just_pays_also_when_its_cost_was_learned_after_it_was_asked_for(
    draft_ms: float,
) -> None:
    costs = CostModel(CURVE)
    prior = PriorSurvival(costs)
    prior.of("a", 8)  # as at the first offer: nothing is known, so it counts as free
    drafted(costs, draft_ms, times=3)
    assert 0.0 < net_gain(costs, prior.of("a", 8)) < 0.15


def test_what_training_found_is_taken_until_the_weights_change() -> None:
    costs = CostModel(CURVE)
    prior = PriorSurvival(costs)
    prior.take({"a": (0.5, 0.2, 0.1)})
    assert prior.of("a", 5).tolist() == [0.5, 0.2, 0.1, 0.0, 0.0]
    assert prior.of("a", 2).tolist() == [0.5, 0.2]
    assert prior.of("a", 0).tolist() == []
    unknown = prior.of("b", 5)
    prior.forget_arm("a")
    assert prior.of("a", 5).tolist() == unknown.tolist()
