"""Dwell: no flapping, and no draft missed for it that is clearly worth taking."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.rows import NONE, Prediction, StepCost
from whiflash.routing.assigner import Assigner
from whiflash.routing.costs import CostModel

COSTS = CostModel(CostCurve(((1, 10.0), (101, 110.0))))
DWELL = 4


def arms_over(assigner, row, gains, arms=("a",), ready=True):
    """The arm of one row over rounds; gains[i][j] is the survival of arm j's only node (0: nothing
    found), and at price 0.5 a node costs half a token."""
    taken = []
    for round_gains in gains:
        odds = {arm: np.array([g]) for arm, g in zip(arms, round_gains, strict=True) if g > 0.0}
        drafts = {arm: DraftTree.chain([1], values) for arm, values in odds.items()}
        routed = row(drafts=drafts) if ready else row(paid=arms)
        (choice,) = assigner.choose([routed], [Prediction(survival=odds)], COSTS, 0.5, 1)
        taken.append(choice.arm)
        assigner.check_integrity()
    return taken


def num_changes(taken):
    return sum(a != b for a, b in pairwise(taken))


@pytest.mark.parametrize("ready", [True, False])
def test_a_marginal_arm_comes_back_only_after_the_dwell(row, ready):
    taken = arms_over(Assigner(dwell_rounds=DWELL), row, [(0.55,), (0.45,)] * 20, ready=ready)
    assert "a" in taken[1:]
    assert num_changes(taken) <= 2 * 40 / DWELL


def test_leaving_is_free_at_once(row):
    assert arms_over(Assigner(dwell_rounds=DWELL), row, [(0.9,), (0.4,)]) == ["a", NONE]


def test_a_clear_gain_at_hand_does_not_wait_but_one_to_be_drafted_does(row):
    gains = [(0.55,), (0.45,), (0.95,)]
    assert arms_over(Assigner(dwell_rounds=DWELL), row, gains) == ["a", NONE, "a"]
    assert arms_over(Assigner(dwell_rounds=DWELL), row, gains, ready=False) == ["a", NONE, NONE]


@pytest.mark.parametrize("ready", [True, False])
def test_two_arms_of_about_equal_worth_do_not_alternate(row, ready):
    gains = [(0.80, 0.82), (0.82, 0.80)] * 10
    taken = arms_over(Assigner(dwell_rounds=DWELL), row, gains, ("a", "b"), ready)
    assert 0 < num_changes(taken) <= len(gains) / DWELL


def test_a_round_without_a_draft_is_no_change(row):
    gains = [(0.55,)] + [(0.0,), (0.55,)] * 5
    taken = arms_over(Assigner(dwell_rounds=DWELL), row, gains)
    assert taken == ["a"] + [NONE, "a"] * 5


def test_forgotten_sequences_start_anew(row):
    assigner = Assigner(dwell_rounds=DWELL)
    arms_over(assigner, row, [(0.55,), (0.45,)])
    assert arms_over(assigner, row, [(0.55,)]) == [NONE]
    assigner.forget(0)
    assigner.forget(0)
    assert arms_over(assigner, row, [(0.55,)]) == ["a"]


@pytest.mark.parametrize("pair", [(8, 9), (15, 17), (4, 5)])
def test_load_oscillating_around_a_boundary_does_not_thrash(row, pair):
    """vllm #49548: K flipped each step where the batch size crossed a table's boundary."""
    cliff = CostCurve(((1, 10.0), (pair[0] * 2, 12.0), (pair[0] * 2 + 1, 19.0), (64, 22.0)))
    costs, assigner = CostModel(cliff), Assigner(dwell_rounds=DWELL)
    taken: dict[int, list[str]] = {}
    for step in range(60):
        rows = [row(i, paid=("a",)) for i in range(pair[step % 2])]
        odds = [Prediction(survival={"a": np.array([0.55 + 0.001 * r.sequence_id])}) for r in rows]
        choices = assigner.choose(rows, odds, costs, 0.75, len(rows))
        for routed, choice in zip(rows, choices, strict=True):
            taken.setdefault(routed.sequence_id, []).append(choice.arm)
    changes = [num_changes(arms) for arms in taken.values()]
    assert 0 < max(changes) <= 2 * 60 / DWELL


def catching_up_costs(per_token_ms):
    costs = CostModel(CostCurve(((1, 10.0), (101, 110.0))))
    for tokens in (10, 20, 40) * 20:
        step = StepCost(
            1, 10.0, {}, 10.0, 1, True, True, dict.fromkeys("ab", (tokens, per_token_ms * tokens))
        )
        costs.observe(step, 1)
    return costs


def arm_with_backlog(assigner, row, costs, backlog, sequence_id=0):
    """At price 0.5 both arms' only node is worth 0.9 and costs half a token."""
    odds = {"a": np.array([0.9]), "b": np.array([0.9])}
    routed = replace(row(sequence_id=sequence_id, paid=("a", "b")), backlog=backlog)
    (choice,) = assigner.choose([routed], [Prediction(survival=odds)], costs, 0.5, 1)
    return choice.arm


def test_the_arm_that_lags_less_is_taken(row):
    costs = catching_up_costs(0.01)
    assert arm_with_backlog(Assigner(), row, costs, {"a": 100, "b": 20}) == "b"
    assert arm_with_backlog(Assigner(), row, costs, {"a": 20, "b": 100}) == "a"


def test_a_long_backlog_pays_only_over_a_stay_that_is_long_enough(row):
    """50 tokens take 0.5 ms, worth 0.25 tokens: less than the gain of 0.4. A thousand would cost
    5 tokens: over a stay of 8 rounds still more than it brings, over one of 20 less."""
    costs = catching_up_costs(0.01)
    assert arm_with_backlog(Assigner(), row, costs, {"a": 50, "b": 5000}) == "a"
    assigner = Assigner(dwell_rounds=1)
    assert arm_with_backlog(assigner, row, costs, {"a": 1000, "b": 5000}) == NONE
    for sequence_id in range(1, 200):  # turns of 20 rounds each with the arm
        for _ in range(20):
            assert arm_with_backlog(assigner, row, costs, {"a": 5, "b": 5000}, sequence_id) == "a"
        assigner.forget(sequence_id)
    assert arm_with_backlog(assigner, row, costs, {"a": 1000, "b": 5000}, 1000) == "a"


def test_the_held_arm_pays_its_backlog_at_once(row):
    costs = catching_up_costs(0.01)
    assigner = Assigner(dwell_rounds=1)
    assert arm_with_backlog(assigner, row, costs, {"a": 5, "b": 5000}) == "a"
    assert arm_with_backlog(assigner, row, costs, {"a": 100, "b": 5000}) == NONE
