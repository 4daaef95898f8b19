"""Trim by price: optimal, closed under ancestors, and silent on fixed choices."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.rows import NONE, Choice
from whiflash.routing.costs import CostModel
from whiflash.routing.survival import capped
from whiflash.routing.trim import trim


@st.composite
def trees(draw: st.DrawFn, most: int = 4) -> DraftTree:
    """Nodes named by their number; survival need not fall with depth."""
    size = draw(st.integers(0, most))
    parents = [draw(st.integers(0, i)) for i in range(size)]
    odds = draw(st.lists(st.floats(0.0, 1.0, width=32), min_size=size, max_size=size))
    return DraftTree.from_parents(list(range(size)), parents, odds)


@st.composite
def curves(draw: st.DrawFn) -> CostCurve:
    steps = draw(st.lists(st.floats(0.0, 5.0), min_size=14, max_size=14))
    return CostCurve(tuple((i + 1, 5.0 + sum(steps[: i + 1])) for i in range(len(steps))))


def closed_masks(tree: DraftTree, budget: int) -> list[np.ndarray]:
    masks = [np.array(bits, bool) for bits in product((False, True), repeat=len(tree))]
    kept = [tree.keep(mask) for mask in masks]
    return [m for m, k in zip(masks, kept, strict=True) if len(k) == m.sum() <= budget]


def best_value(
    drafts: list[DraftTree], budgets: list[int], costs: CostModel, price: float, base: int
) -> float:
    best = 0.0
    for masks in product(*[closed_masks(t, b) for t, b in zip(drafts, budgets, strict=True)]):
        tokens = sum(float(capped(t)[m].sum()) for t, m in zip(drafts, masks, strict=True))
        nodes = int(sum(m.sum() for m in masks))
        ms = costs.verify_ms(base + nodes) - costs.verify_ms(base)
        best = max(best, tokens - price * ms)
    return best


def value_of(
    drafts: list[DraftTree], kept: list[DraftTree], costs: CostModel, price: float, base: int
) -> float:
    tokens = sum(float(capped(t)[k.tokens].sum()) for t, k in zip(drafts, kept, strict=True))
    ms = costs.verify_ms(base + sum(map(len, kept))) - costs.verify_ms(base)
    return tokens - price * ms


@given(
    st.lists(trees(), min_size=1, max_size=2), curves(), st.floats(0.0, 1.0), st.integers(0, 4),
    st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_equals_brute_force_over_ancestor_closed_sets(drafts, curve, price, prefill, budget):
    costs, base = CostModel(curve), len(drafts) + prefill
    choices = [Choice("a", budget) for _ in drafts]
    kept = trim(drafts, choices, costs, price, base)
    best = best_value(drafts, [budget] * len(drafts), costs, price, base)
    assert value_of(drafts, kept, costs, price, base) == pytest.approx(best, abs=1e-6)


@given(st.lists(trees(12), min_size=1, max_size=4), st.floats(0.0, 1.0), st.integers(0, 12))
@settings(max_examples=80, deadline=None)
def test_what_is_kept_is_the_drafts_own_and_closed_under_ancestors(drafts, price, budget):
    costs = CostModel(CostCurve(((1, 5.0), (60, 64.0))))
    kept = trim(drafts, [Choice("a", budget)] * len(drafts), costs, price, len(drafts))
    for tree, part in zip(drafts, kept, strict=True):
        assert len(part) <= budget
        same = tree.keep(np.isin(np.arange(len(tree)), part.tokens))
        for column in ("tokens", "parents", "depths", "survival"):
            assert getattr(part, column).tolist() == getattr(same, column).tolist()


@given(st.lists(trees(8), min_size=1, max_size=3), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
@settings(max_examples=50, deadline=None)
def test_dearer_time_never_keeps_more(drafts, one, other):
    costs = CostModel(CostCurve(((1, 5.0), (8, 6.0), (9, 12.0), (40, 50.0))))
    choices = [Choice("a", 8)] * len(drafts)
    cheap, dear = (
        sum(map(len, trim(drafts, choices, costs, price, len(drafts))))
        for price in sorted((one, other))
    )
    assert dear <= cheap


def test_load_shrinks_a_draft_down_to_none():
    """A node is worth less where a forward is already full."""
    costs = CostModel(CostCurve(((1, 10.0), (16, 11.0), (32, 40.0), (64, 120.0))))
    draft = DraftTree.chain([1, 2, 3, 4], [0.9, 0.8, 0.6, 0.3])
    kept = [len(trim([draft], [Choice("a", 4)], costs, 0.4, base)[0]) for base in (1, 13, 20, 40)]
    assert kept == [4, 3, 2, 0]


def test_fixed_rows_are_held_to_their_budget_alone_and_count_as_base():
    costs = CostModel(CostCurve(((1, 10.0), (4, 10.0), (5, 30.0))))
    certain = DraftTree.chain([1, 2, 3], [0.2, 0.1, 0.1])
    wanted = DraftTree.chain([1], [0.9])
    fixed = Choice("a", 2, is_fixed=True)
    alone = trim([DraftTree.empty(), wanted], [fixed, Choice("a", 1)], costs, 0.1, 3)
    assert [len(t) for t in alone] == [0, 1]
    beside = trim([certain, wanted], [fixed, Choice("a", 1)], costs, 0.1, 2)
    assert [len(t) for t in beside] == [2, 0]


def test_the_policys_survival_is_what_prices():
    """One row's draft claims too much; the policy knows, and it must know here too."""
    costs = CostModel(CostCurve(((1, 10.0), (101, 110.0))))
    boastful = DraftTree.chain([1, 2], [0.99, 0.98])
    learned = Choice("a", 2, survival=np.array([0.6, 0.1]))
    fresh = DraftTree.chain([3], [0.9])
    kept = trim([boastful, fresh], [learned, Choice("b", 1)], costs, 0.5, 2)
    assert [len(t) for t in kept] == [1, 1]


def test_a_draft_that_nobody_chose_is_dropped():
    costs = CostModel(CostCurve(((1, 10.0),)))
    assert len(trim([DraftTree.chain([1])], [Choice(NONE, 0)], costs, 0.1, 1)[0]) == 0


def test_nonsense_survival_is_worth_nothing():
    costs = CostModel(CostCurve(((1, 10.0), (101, 11.0))))
    hostile = DraftTree.chain([1, 2, 3], [float("nan"), 7.0, -1.0])
    assert len(trim([hostile], [Choice("a", 3)], costs, 0.1, 1)[0]) == 0
    boast = DraftTree.chain([1], [1e9])
    assert len(trim([boast], [Choice("a", 1)], costs, 1e3, 1)[0]) == 0
