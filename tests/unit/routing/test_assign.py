"""The joint choice against brute force, and its laws."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.rows import NONE, Choice, Prediction, RouteRow
from whiflash.core.signals import Signals
from whiflash.routing.assign import PLAIN, assign
from whiflash.routing.costs import CostModel
from whiflash.routing.offers import Offers

ODDS = st.lists(st.floats(0.0, 1.0), min_size=0, max_size=3)
LINEAR = CostCurve(((1, 10.0), (65, 42.0)))


@st.composite
def steps_of(draw: st.DrawFn, arms: tuple[str, ...], ready: bool) -> list[dict[str, list[float]]]:
    size = draw(st.integers(1, 3))
    return [{arm: sorted(draw(ODDS), reverse=True) for arm in arms} for _ in range(size)]


@st.composite
def curves(draw: st.DrawFn) -> CostCurve:
    """A staircase of any shape."""
    steps = draw(st.lists(st.floats(0.0, 5.0), min_size=12, max_size=12))
    return CostCurve(tuple((i + 1, 5.0 + sum(steps[: i + 1])) for i in range(len(steps))))


def rows_of(
    step: list[dict[str, list[float]]], ready: bool, max_nodes: int = 3
) -> tuple[list[RouteRow], list[Prediction]]:
    rows = [
        RouteRow(
            i, "n", Signals(0.5, 0.5), (NONE, *odds),
            {a: DraftTree.chain([0] * len(o), o) for a, o in odds.items()} if ready else {},
            0, max_nodes,
        )
        for i, odds in enumerate(step)
    ]  # fmt: skip
    return rows, [Prediction(survival={a: np.array(o) for a, o in odds.items()}) for odds in step]


def value_of(
    step: list[dict[str, list[float]]], picks: list[tuple[str, int]], costs: CostModel,
    price: float, base: int, ready: bool,
) -> float:  # fmt: skip
    tokens = sum(sum(odds[arm][:k]) for odds, (arm, k) in zip(step, picks, strict=True) if k)
    nodes = sum(k for _, k in picks)
    ms = costs.verify_ms(base + nodes) - costs.verify_ms(base)
    if not ready:
        ms += sum(costs.draft_ms(a, n) for a, n in Counter(a for a, k in picks if k).items())
    return tokens - price * ms


def best_value(
    step: list[dict[str, list[float]]], costs: CostModel, price: float, base: int, ready: bool
) -> float:
    options = [
        [(NONE, 0)] + [(a, k + 1) for a, o in odds.items() for k in range(len(o))] for odds in step
    ]
    plans = (list(picks) for picks in product(*options))
    return max(value_of(step, picks, costs, price, base, ready) for picks in plans)


def chosen(choices: list[Choice]) -> list[tuple[str, int]]:
    return [(choice.arm, choice.budget) for choice in choices]


@given(steps_of(("a",), True), curves(), st.floats(0.0, 1.0), st.integers(0, 4))
@settings(max_examples=80, deadline=None)
def test_one_arm_at_hand_equals_brute_force_on_any_staircase(step, curve, price, prefill):
    costs, base = CostModel(curve), len(step) + prefill
    choices = assign(*rows_of(step, ready=True), costs, price, base)
    value = value_of(step, chosen(choices), costs, price, base, ready=True)
    assert value == pytest.approx(best_value(step, costs, price, base, True), abs=1e-6)


@given(steps_of(("a", "b"), False), st.floats(0.0, 1.0), st.tuples(*[st.floats(0, 3)] * 4))
@settings(max_examples=80, deadline=None)
def test_many_paid_arms_equal_brute_force_where_verify_is_linear(step, price, ms):
    costs = CostModel(LINEAR, {"a": (ms[0], ms[1]), "b": (ms[2], ms[3])})
    choices = assign(*rows_of(step, ready=False), costs, price, len(step))
    value = value_of(step, chosen(choices), costs, price, len(step), ready=False)
    best = best_value(step, costs, price, len(step), False)
    assert value == pytest.approx(best, abs=1e-6)


@given(
    steps_of(("a", "b"), False), curves(), st.floats(0.0, 1.0), st.tuples(*[st.floats(0, 3)] * 4)
)
@settings(max_examples=80, deadline=None)
def test_many_arms_on_a_staircase_miss_less_than_one_rows_worth(step, curve, price, ms):
    costs = CostModel(curve, {"a": (ms[0], ms[1]), "b": (ms[2], ms[3])})
    choices = assign(*rows_of(step, ready=False), costs, price, len(step))
    value = value_of(step, chosen(choices), costs, price, len(step), ready=False)
    worth = max(sum(odds) for row in step for odds in row.values())
    assert value >= -1e-9
    assert value >= best_value(step, costs, price, len(step), False) - worth - 1e-6


@given(steps_of(("a", "b"), False), curves(), st.floats(0.0, 1.0), st.integers(0, 2), st.booleans())
@settings(max_examples=50, deadline=None)
def test_limits_hold(step, curve, price, max_nodes, ready):
    rows, predictions = rows_of(step, ready, max_nodes)
    choices = assign(rows, predictions, CostModel(curve), price, len(step))
    for row, prediction, choice in zip(rows, predictions, choices, strict=True):
        assert choice.arm in row.arms
        assert (choice.arm == NONE) == (choice.budget == 0)
        assert choice.budget <= max_nodes
        if choice.budget:
            assert choice.budget <= len(prediction.survival[choice.arm])


@given(steps_of(("a",), True), curves(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
@settings(max_examples=50, deadline=None)
def test_dearer_time_never_buys_more_nodes(step, curve, one, other):
    cheap, dear = sorted((one, other))
    nodes = [
        sum(c.budget for c in assign(*rows_of(step, True), CostModel(curve), price, len(step)))
        for price in (cheap, dear)
    ]
    assert nodes[1] <= nodes[0]


def test_none_wins_a_tie():
    costs = CostModel(CostCurve(((1, 10.0), (2, 11.0))))
    rows, predictions = rows_of([{"a": [0.5]}], ready=True)
    assert assign(rows, predictions, costs, 0.5, 1) == [PLAIN]
    assert assign(rows, predictions, costs, 0.49, 1) == [Choice("a", 1)]


def test_a_shared_draft_cost_is_paid_once():
    """Alone neither row is worth the draft; together they are."""
    costs = CostModel(LINEAR, {"a": (5.0, 0.0)})
    assert assign(*rows_of([{"a": [0.9]}], False), costs, 0.2, 1) == [PLAIN]
    both = assign(*rows_of([{"a": [0.9]}, {"a": [0.9]}], False), costs, 0.2, 2)
    assert chosen(both) == [("a", 1), ("a", 1)]


def test_prefill_in_the_forward_moves_the_staircase():
    """Row 38's cure: cost is a matter of the whole forward, not of a count that leaves some out."""
    costs = CostModel(CostCurve(((1, 10.0), (8, 10.0), (9, 20.0), (16, 20.0))))
    rows, predictions = rows_of([{"a": [0.9, 0.8]}], ready=True)
    assert chosen(assign(rows, predictions, costs, 0.1, 1)) == [("a", 2)]
    assert chosen(assign(rows, predictions, costs, 0.1, 7)) == [("a", 1)]
    assert chosen(assign(rows, predictions, costs, 0.3, 8)) == [(NONE, 0)]
    assert chosen(assign(rows, predictions, costs, 0.3, 9)) == [("a", 2)]


def test_fixed_choices_pass_with_limits_only():
    costs = CostModel(CostCurve(((1, 10.0), (100, 1e6))))
    rows, _ = rows_of([{"a": [0.1]}, {"a": [0.1]}, {"a": [0.1]}, {"a": [0.1]}], ready=False)
    fixed = [Prediction(fixed=f) for f in (("a", 2), ("a", 99), ("gone", 2), (NONE, 5))]
    assert assign(rows, fixed, costs, 1e9, 4) == [
        Choice("a", 2, is_fixed=True),
        Choice("a", 3, is_fixed=True),
        Choice(NONE, 0, is_fixed=True),
        Choice(NONE, 0, is_fixed=True),
    ]


def test_a_choice_along_a_draft_at_hand_carries_its_survival():
    costs = CostModel(LINEAR)
    (ready,) = assign(*rows_of([{"a": [0.9, 0.8]}], True), costs, 0.1, 1)
    assert ready.survival is not None
    assert ready.survival.tolist() == [0.9, 0.8]
    (paid,) = assign(*rows_of([{"a": [0.9, 0.8]}], False), costs, 0.1, 1)
    assert (paid.arm, paid.survival) == ("a", None)


def test_more_arms_than_can_be_weighed_are_refused():
    rows, predictions = rows_of([{name: [0.5] for name in "abcde"}], ready=False)
    with pytest.raises(ValueError, match="at most 4 arms"):
        Offers.of(rows, predictions)
