"""A tree keeps the reasons of its nodes, however it is cut."""

from __future__ import annotations

import numpy as np

from whiflash.drafters.retrieval.tree import RetrievedTree


def tree() -> RetrievedTree:
    def row(*numbers: int) -> np.ndarray:
        return np.array(numbers, np.int32)

    #   root -> 10 -> 11 -> 12
    #        -> 20 -> 21
    return RetrievedTree(
        row(10, 20, 11, 21, 12), row(0, 0, 1, 2, 3), row(1, 1, 2, 2, 3),
        np.array([0.9, 0.5, 0.8, 0.4, 0.3], np.float32), "context",
        row(100, 200, 110, 210, 120), np.array([[10, 100], [5, 50]], np.int32),
    )  # fmt: skip


def test_cells_follow_their_nodes_through_a_cut() -> None:
    kept = tree().keep(np.array([True, False, True, True, True]))
    assert isinstance(kept, RetrievedTree)
    assert kept.tokens.tolist() == [10, 11, 12]
    assert kept.cells.tolist() == [100, 110, 120]
    assert kept.firsts.tolist() == [[10, 100], [5, 50]]


def test_limits_and_unknown_ids_keep_the_cells_too() -> None:
    limited = tree().limited(4, 1)
    assert isinstance(limited, RetrievedTree)
    assert limited.cells.tolist() == [100, 200]
    known = tree().valid_for(20)
    assert isinstance(known, RetrievedTree)
    assert known.cells.tolist() == [100, 110, 120]


def test_a_tree_that_loses_nothing_is_the_same_object() -> None:
    whole = tree()
    assert whole.limited(16, 16).valid_for(1000) is whole
