"""Learned survival of drafted nodes: how likely is a node, given that its parent came true.

A model's own probability says how sure it is, not how often it is right: that depends on the
target, the text and the depth. So outcomes are counted per cell of (sampled or argmax, depth,
probability), starting from the probability itself, and a node's survival is the product of its
path's cells (design.md 7).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree, IntArray
from whiflash.core.rows import Feedback

Odds = npt.NDArray[np.float64]
DEPTH_ENDS = (1, 2, 3, 4, 6, 8, 12)  # the last depth of each class; deeper ones share the last
PROBABILITY_ENDS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
PRIOR_TRIALS = 3.0
FLOOR = 0.005  # no cell is ever given up, so that it goes on being tried
CEILING = 0.995
MAX_TRIALS = 256.0  # older outcomes fade: both counts are halved here
MAX_TABLES = 1024
_NUM_DEPTHS = len(DEPTH_ENDS) + 1
_NUM_PROBABILITIES = len(PROBABILITY_ENDS) + 1
NUM_CELLS = 2 * _NUM_DEPTHS * _NUM_PROBABILITIES


def _no_cells() -> IntArray:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class ScoredTree(DraftTree):
    """A draft tree that remembers the cell each node's survival came from.

    cells: int32 [m].
    """

    cells: IntArray = field(default_factory=_no_cells)

    def keep(self, mask: npt.NDArray[np.bool_]) -> DraftTree:
        kept = DraftTree.keep(self, mask)
        if kept is self:
            return self
        row_kept = [True]
        for is_asked, parent in zip(mask.tolist(), self.parents.tolist(), strict=True):
            row_kept.append(is_asked and row_kept[parent])
        cells = self.cells[np.array(row_kept[1:], bool)]
        return ScoredTree(kept.tokens, kept.parents, kept.depths, kept.survival, kept.source, cells)


def cells_of(depths: npt.ArrayLike, probabilities: npt.ArrayLike, is_sampled: bool) -> IntArray:
    """int32 [m], the cells of nodes at those depths with those conditional probabilities."""
    depth_class = np.searchsorted(DEPTH_ENDS, depths, side="left")
    probability_class = np.searchsorted(PROBABILITY_ENDS, probabilities, side="left")
    row = _NUM_DEPTHS * int(is_sampled) + depth_class
    return (row * _NUM_PROBABILITIES + probability_class).astype(np.int32)


def _prior() -> Odds:
    """float64 [NUM_CELLS]: the middle of each class of probabilities."""
    ends = np.array([0.0, *PROBABILITY_ENDS, 1.0])
    return np.tile((ends[:-1] + ends[1:]) / 2, 2 * _NUM_DEPTHS)


class SurvivalTable:
    """One table of `NUM_CELLS` probabilities. It tells of the texts that it was learned from, so
    every namespace has its own."""

    def __init__(self) -> None:
        self._trials = np.full(NUM_CELLS, PRIOR_TRIALS)
        self._hits = _prior() * PRIOR_TRIALS
        self.num_outcomes = 0

    def odds(self, cells: IntArray) -> Odds:
        """float64, probability that a node of each cell comes true if its parent does."""
        return np.clip(self._hits[cells] / self._trials[cells], FLOOR, CEILING)

    def tree(
        self, tokens: IntArray, parents: IntArray, depths: IntArray, cells: IntArray, source: str
    ) -> ScoredTree:
        """The nodes with their survival by this table; parents come before children."""
        odds = self.odds(cells)
        of_row = np.ones(len(tokens) + 1)
        for node, parent in enumerate(parents.tolist()):
            of_row[node + 1] = of_row[parent] * odds[node]
        survival = of_row[1:].astype(np.float32)
        return ScoredTree(tokens, parents, depths, survival, source, cells)

    def learn(self, tree: ScoredTree, followed: Sequence[int]) -> None:
        """Counts every node whose parent came true and whose depth the text has reached; all
        others are censored."""
        row = 0
        for token in followed:
            children = np.flatnonzero(tree.parents == row)
            is_hit = tree.tokens[children] == token
            np.add.at(self._trials, tree.cells[children], 1.0)
            np.add.at(self._hits, tree.cells[children[is_hit]], 1.0)
            self.num_outcomes += len(children)
            if not is_hit.any():
                break
            row = int(children[is_hit][0]) + 1
        self._fade()

    def _fade(self) -> None:
        is_full = self._trials >= MAX_TRIALS
        self._trials[is_full] /= 2
        self._hits[is_full] /= 2

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        assert ((self._hits >= 0) & (self._hits <= self._trials)).all(), "more hits than trials"
        assert (self._trials < MAX_TRIALS).all(), "counts did not fade"


class SurvivalTables:
    """A table per namespace, at most `MAX_TABLES`; the least recently used one is forgotten."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, SurvivalTable] = OrderedDict()

    def of(self, namespace: str) -> SurvivalTable:
        table = self._tables.get(namespace)
        if table is None:
            table = self._tables[namespace] = SurvivalTable()
            if len(self._tables) > MAX_TABLES:
                self._tables.popitem(last=False)
        self._tables.move_to_end(namespace)
        return table

    def learn(self, feedback: Sequence[Feedback]) -> None:
        """Outcomes of scored trees, verified or shadow; others teach nothing here."""
        for entry in feedback:
            if isinstance(entry.tree, ScoredTree):
                self.of(entry.row.namespace).learn(entry.tree, entry.followed)

    def check_integrity(self) -> None:
        assert len(self._tables) <= MAX_TABLES
        for table in self._tables.values():
            table.check_integrity()
