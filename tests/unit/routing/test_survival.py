"""Survival capped by the parent's, in order of rank."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.draft import DraftTree
from whiflash.routing.survival import capped, likeliest_first, ranked


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    size = draw(st.integers(0, 8))
    parents = [draw(st.integers(0, i)) for i in range(size)]
    odds = draw(st.lists(st.floats(0.0, 1.0, width=32), min_size=size, max_size=size))
    return DraftTree.from_parents([0] * size, parents, odds)


@given(trees())
def test_no_node_beats_an_ancestor_and_none_is_lowered_for_nothing(tree):
    odds = capped(tree)
    for node in range(len(tree)):
        path, row = [], node + 1
        while row:
            path.append(float(tree.survival[row - 1]))
            row = int(tree.parents[row - 1])
        assert odds[node] == min(path)


@given(trees())
def test_any_number_of_the_likeliest_nodes_is_closed_under_ancestors(tree):
    order = likeliest_first(capped(tree))
    for count in range(len(tree) + 1):
        mask = np.isin(np.arange(len(tree)), order[:count])
        assert len(tree.keep(mask)) == count


@given(trees())
def test_chains_are_told_from_trees(tree):
    assert tree.is_chain == (tree.parents.tolist() == list(range(len(tree))))


@given(st.lists(trees(), max_size=4))
def test_rows_are_sorted_and_padded_with_zero(drafts):
    odds = ranked(drafts)
    for tree, row in zip(drafts, odds, strict=True):
        assert row[: len(tree)].tolist() == sorted(capped(tree).tolist(), reverse=True)
        assert not row[len(tree) :].any()


def test_nonsense_is_brought_into_range():
    tree = DraftTree.chain([1, 2, 3, 4], [2.0, 0.5, float("nan"), 0.4])
    assert capped(tree).tolist() == [1.0, 0.5, 0.0, 0.0]
    assert ranked([tree]).tolist() == [[1.0, 0.5, 0.0, 0.0]]
