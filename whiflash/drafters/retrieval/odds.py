"""Learned probabilities that a drafted node comes true, given that its parent did."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from whiflash.drafters.retrieval.tree import RetrievedTree
from whiflash.trajectories.index import layout
from whiflash.trajectories.index.jit import jit

FloatTable = npt.NDArray[np.float64]
# The prior by bucket of matched tokens, of a continuation seen once and no other: from replayed
# agent runs (tau-bench, SWE-agent, InterCode, BFCL; pieces of words as tokens). On the whole it is
# the 2/3 of facts: retrieval, 2.3.
SEEN_ONCE = (0.58, 0.58, 0.62, 0.64, 0.66, 0.75, 0.81, 0.88, 0.93, 0.94, 0.94, 0.98)
SEEN_OFTEN_MISSES = 0.35  # times the misses of one seen once
SHARE_ODDS = 0.75  # times its share, of one continuation among several
PRIOR_TRIALS = 3.0
FLOOR = 0.02  # no cell is ever given up, so that it goes on being tried
CEILING = 0.995
MAX_TRIALS = 256.0  # older outcomes fade: both counts are halved here
_SHARES = (0.05, 0.15, 0.275, 0.425, 0.6, 0.8, 0.95)  # middles of layout.EDGE_SHARES


def _prior() -> FloatTable:
    """float64 [NUM_CELLS]."""
    per_length = [
        [*(SHARE_ODDS * share for share in _SHARES), once, 1 - SEEN_OFTEN_MISSES * (1 - once)]
        for once in SEEN_ONCE
    ]
    return np.tile(np.repeat(per_length, 2), layout.NUM_SOURCES)


@jit
def _count(cell: int, is_hit: bool, hits: Any, trials: Any, odds: Any) -> None:
    hits[cell] += 1.0 if is_hit else 0.0
    trials[cell] += 1.0
    if trials[cell] >= MAX_TRIALS:
        hits[cell] /= 2.0
        trials[cell] /= 2.0
    odds[cell] = min(max(hits[cell] / trials[cell], FLOOR), CEILING)


@jit
def _score(
    tokens: Any, parents: Any, depths: Any, cells: Any, firsts: Any, followed: Any,
    hits: Any, trials: Any, odds: Any,
) -> int:  # fmt: skip
    """Counts every node whose parent came true and whose depth the text has reached; all others
    are censored. Returns how many were counted."""
    num_scored = 0
    on_path = np.zeros(len(tokens) + 1, np.bool_)
    on_path[0] = True
    for node in range(len(tokens)):
        if on_path[parents[node]] and depths[node] <= len(followed):
            is_hit = followed[depths[node] - 1] == tokens[node]
            on_path[node + 1] = is_hit
            _count(cells[node], is_hit, hits, trials, odds)
            num_scored += 1
    for source in range(len(firsts)):
        token, cell = firsts[source]
        is_in_tree = len(cells) > 0 and cell == cells[0]
        if cell >= 0 and not is_in_tree and len(followed) > 0:
            _count(cell, followed[0] == token, hits, trials, odds)
            num_scored += 1
    return num_scored


class LearnedOdds:
    """One table of `layout.NUM_CELLS` probabilities. It tells of the texts that it was learned
    from, so every namespace has its own.

    odds: float32 [NUM_CELLS], what the kernels read.
    """

    def __init__(self) -> None:
        prior = _prior()
        self._hits = prior * PRIOR_TRIALS
        self._trials = np.full(layout.NUM_CELLS, PRIOR_TRIALS)
        self.odds = np.maximum(prior, FLOOR).astype(np.float32)
        self.num_outcomes = 0

    def learn(self, tree: RetrievedTree, followed: tuple[int, ...]) -> None:
        """Scores a tree against the ids that came after its root, as many as are known."""
        self.num_outcomes += _score(
            tree.tokens, tree.parents, tree.depths, tree.cells, tree.firsts,
            np.array(followed, np.int32), self._hits, self._trials, self.odds,
        )  # fmt: skip

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        hits, trials = self._hits, self._trials
        assert ((hits >= 0) & (hits <= trials)).all(), "more hits than trials"
        assert (trials < MAX_TRIALS).all(), "counts did not fade"
        assert ((self.odds >= np.float32(FLOOR)) & (self.odds <= np.float32(CEILING))).all()


def warm_up() -> None:
    """Compiles the scoring, or loads it from numba's cache, so that no round has to."""
    none = np.zeros(0, np.int32)
    tree = RetrievedTree(none, none, none, np.zeros(0, np.float32))
    LearnedOdds().learn(tree, ())
