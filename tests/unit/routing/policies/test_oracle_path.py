"""The clairvoyant path against all paths there are, with catch-up paid as an engine would."""

from __future__ import annotations

import math

import numpy as np
import pytest

from whiflash.core.costs import CostCurve
from whiflash.core.rows import NONE, StepCost
from whiflash.core.signals import Signals
from whiflash.routing.policies.oracle import clairvoyant
from whiflash.routing.replay.costs import ReplayCosts
from whiflash.routing.replay.turns import Proposal, Root, Turn

TAPS = ("eagle3", "dflash")
ARMS = (*TAPS, "retrieval")


def random_costs(random) -> ReplayCosts:
    steps = np.cumsum(random.uniform(0.0, 2.0, 6)) + 5.0
    costs = ReplayCosts(CostCurve(tuple(zip((1, 2, 3, 4, 6, 9), steps.tolist(), strict=True))))
    for arm in TAPS:
        fixed, per_token = random.uniform(0.1, 6.0), random.uniform(0.0, 1.5)
        for tokens in (1, 2, 5, 3):
            ms = 0.3 + per_token * tokens
            step = StepCost(1, 0.0, {arm: fixed}, 0.0, 1, False, False, {arm: (tokens, ms)})
            costs.observe(step, 1, {arm: 1})
    costs.freeze()
    return costs


def random_turn(random, length: int) -> Turn:
    turn = Turn(0, {}, last=3 + length)
    for position in range(3, 3 + length):
        if position > 3 and random.random() < 0.15:
            continue  # no round began there
        proposals = {}
        for arm in ARMS:
            nodes = int(random.integers(0, 5))
            ranks = np.sort(random.choice(nodes, random.integers(0, nodes + 1), replace=False))
            known = tuple(ranks.tolist()) if random.random() < 0.9 else None
            proposals[arm] = Proposal(nodes, (0.5,) * nodes, known)
        turn.roots[position] = Root(Signals(0.1, 0.5), 4, 8, 1, proposals)
    return turn


def least_ms(turn: Turn, costs: ReplayCosts, position: int, absorbed: dict[str, int]) -> float:
    """Every arm with every budget at every root."""
    if position >= turn.last:
        return 0.0
    best = costs.round_ms(NONE, 0, 0) + least_ms(turn, costs, position + 1, absorbed)
    root = turn.roots.get(position)
    for arm, proposal in (root.proposals if root else {}).items():
        for budget in range(1, proposal.nodes + 1) if proposal.ranks is not None else ():
            backlog = position - absorbed[arm] if arm in TAPS else 0
            ms = costs.round_ms(arm, budget, backlog)
            emitted = proposal.accepted(budget) + 1
            after = {**absorbed, arm: position}
            best = min(best, ms + least_ms(turn, costs, position + emitted, after))
    return best


@pytest.mark.parametrize("seed", range(30))
def test_no_path_is_quicker(seed):
    random = np.random.default_rng(seed)
    costs, turn = random_costs(random), random_turn(random, 5)
    path = clairvoyant(turn, costs, TAPS)
    expected = least_ms(turn, costs, turn.first, dict.fromkeys(ARMS, 0))
    assert path.total_ms == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_the_path_is_one_that_can_be_gone_and_costs_what_it_says(seed):
    random = np.random.default_rng(100 + seed)
    costs, turn = random_costs(random), random_turn(random, 60)
    path = clairvoyant(turn, costs, TAPS)
    position, total, absorbed = turn.first, 0.0, dict.fromkeys(ARMS, 0)
    for step in path.rounds:
        assert step.position == position
        backlog = position - absorbed[step.arm] if step.arm in TAPS else 0
        total += costs.round_ms(step.arm, step.nodes, backlog)
        if step.arm != NONE:
            absorbed[step.arm] = position
            came = turn.roots[position].proposals[step.arm].accepted(step.nodes) + 1
            assert step.emitted == min(came, turn.last - position)
        position += step.emitted
    assert position == turn.last
    assert total == pytest.approx(path.total_ms)


def test_catch_up_keeps_it_from_flapping():
    """One arm everywhere, the other a little better at every second root, but dear to bring up."""
    costs = ReplayCosts(CostCurve(((1, 10.0),)))
    for tokens in (1, 2, 3, 4) * 3:
        for arm, per_token in (("a", 0.0), ("b", 4.0)):
            step = StepCost(1, 0.0, {arm: 1.0}, 0.0, 1, False, False,
                            {arm: (tokens, per_token * tokens)})  # fmt: skip
            costs.observe(step, 1, {arm: 1})
    costs.freeze()
    turn = Turn(0, {}, last=40)
    for position in range(40):
        better = int(position % 2)
        proposals = {"a": Proposal(1, (0.5,), (0,)),
                     "b": Proposal(2, (0.5, 0.4), (0, 1) if better else (0,))}  # fmt: skip
        turn.roots[position] = Root(Signals(0.1, 0.5), 0, 8, 1, proposals)
    path = clairvoyant(turn, costs, ("a", "b"))
    assert {step.arm for step in path.rounds} == {"a"}
    assert math.isclose(path.total_ms, 20 * 11.0)
