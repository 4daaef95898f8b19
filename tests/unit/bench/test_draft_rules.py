"""Rules for the length of drafts, on trees of any shape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whiflash.bench.draft_rules import RULES, DraftRule
from whiflash.core.draft import DraftTree
from whiflash.engine.feedback import matched_path


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    count = draw(st.integers(0, 20))
    parents = [draw(st.integers(0, node)) for node in range(count)]
    tokens = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return DraftTree.from_parents(tokens, parents)


TREE = DraftTree.from_parents([1, 2, 3, 4, 5], [0, 0, 1, 3, 2])
"""1 -> 3 -> 4 and 2 -> 5."""


def test_a_chain_follows_the_first_children() -> None:
    rule = DraftRule("r", is_chain=True)
    assert rule.cut(TREE, 9).tokens.tolist() == [1, 3, 4]
    assert DraftRule("r", is_chain=True, max_depth=2).cut(TREE, 9).tokens.tolist() == [1, 3]


def test_the_match_bounds_a_chain_and_leaves_one_node_at_least() -> None:
    rule = DraftRule("r", is_chain=True, match_factor=0.5)
    assert rule.cut(TREE, 4).tokens.tolist() == [1, 3]
    assert rule.cut(TREE, 1).tokens.tolist() == [1]


@given(trees(), st.integers(1, 64), st.sampled_from(RULES))
def test_a_cut_draft_is_well_formed_and_no_longer_than_its_rule_says(
    tree: DraftTree, matched: int, rule: DraftRule
) -> None:
    cut = rule.cut(tree, matched)
    assert cut.flaw() is None
    if rule.is_chain:
        assert cut.is_chain
        assert cut.max_depth <= rule.max_depth
        assert bool(len(cut)) == bool(len(tree))
    else:
        assert cut is tree


@given(trees(), st.lists(st.integers(0, 3), max_size=8))
def test_acceptance_is_the_longest_path_that_the_text_follows(
    tree: DraftTree, text: list[int]
) -> None:
    """Where siblings have one token, the first of them is the one that is verified."""
    children, row, depth = tree.children(), 0, 0
    while depth < len(text) and text[depth] in children[row]:
        row, depth = children[row][text[depth]], depth + 1
    assert matched_path(tree, tuple(text))[0] == depth
