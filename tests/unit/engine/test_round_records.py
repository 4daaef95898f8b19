"""What the round log says of proposals: ranks of what came true; whole logs of a small engine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.draft import DraftTree
from whiflash.engine.feedback import matched_path
from whiflash.engine.round_records import accepted_ranks


def test_ranks_of_a_chain_are_its_places():
    tree = DraftTree.chain([1, 2, 3], [0.9, 0.8, 0.7])
    assert accepted_ranks(tree, (1, 2, 9)) == [0, 1]
    assert accepted_ranks(tree, (2,)) == []
    assert accepted_ranks(DraftTree.empty(), (1,)) == []


def test_ranks_of_a_tree_say_what_a_cut_would_have_kept():
    """By likelihood 1, 2, 11, 22: cut to two nodes the path 2, 22 has one left."""
    tree = DraftTree.from_parents([1, 2, 11, 22], [0, 0, 1, 2], [0.6, 0.4, 0.3, 0.2])
    assert accepted_ranks(tree, (2, 22, 5)) == [1, 3]
    assert accepted_ranks(tree, (1, 22)) == [0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.floats(0, 1, width=32)),
             max_size=12),
    st.lists(st.integers(0, 3), max_size=6),
)  # fmt: skip
def test_ranks_rise_and_count_what_was_accepted(nodes, text):
    parents = [parent % (place + 1) for place, (_, parent, _) in enumerate(nodes)]
    tree = DraftTree.from_parents([t for t, _, _ in nodes], parents, [odds for _, _, odds in nodes])
    ranks = accepted_ranks(tree, tuple(text))
    assert len(ranks) == matched_path(tree, tuple(text))[0]
    assert ranks == sorted(set(ranks)), "an ancestor is never less likely than its child"
