"""Proposals are scored against the text that came after their roots."""

from __future__ import annotations

import pytest

from whiflash.core.draft import DraftTree
from whiflash.engine.feedback import matched_path


@pytest.mark.parametrize(
    ("followed", "expected"),
    [
        ((), (0, True)),
        ((5,), (1, True)),
        ((5, 6), (2, True)),
        ((5, 6, 7), (3, False)),
        ((5, 9), (1, False)),
        ((4,), (0, False)),
    ],
)
def test_a_chain_is_followed_to_its_first_mismatch(
    followed: tuple[int, ...], expected: tuple[int, bool]
) -> None:
    assert matched_path(DraftTree.chain([5, 6, 7]), followed) == expected


def test_a_tree_is_followed_down_the_branch_that_came() -> None:
    tree = DraftTree.from_parents([5, 6, 7, 8], [0, 0, 1, 2])
    assert matched_path(tree, (6,)) == (1, True)
    assert matched_path(tree, (6, 8)) == (2, False)
    assert matched_path(tree, (5, 8)) == (1, False)
