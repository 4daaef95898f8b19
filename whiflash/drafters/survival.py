"""How often a neural drafter's nodes come true, learned from outcomes: its confidence calibrated.

A cell is (greedy or sampled, depth, first or later sibling, confidence). Its value is the
probability that a node is accepted given that its parent was; survival multiplies along the path.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree, IntArray
from whiflash.core.rows import Feedback

CONFIDENCE_EDGES = np.log([0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.85, 0.93, 0.98])
_MIDDLES = (0.01, 0.035, 0.075, 0.15, 0.25, 0.375, 0.525, 0.675, 0.8, 0.89, 0.955, 0.985)
DEPTH_EDGES = np.array([2, 3, 4, 6, 9])  # depths 1, 2, 3, 4-5, 6-8, 9 and more
_NUM_DEPTHS, _NUM_RANKS, _NUM_MODES = len(DEPTH_EDGES) + 1, 2, 2
NUM_CELLS = _NUM_MODES * _NUM_DEPTHS * _NUM_RANKS * len(_MIDDLES)
PRIOR_TRIALS = 8.0
MAX_TRIALS = 512.0  # older outcomes fade: both counts are halved here
FLOOR, CEILING = 0.005, 0.995
MAX_TABLES = 1024
WeightRow = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScoredTree(DraftTree):
    """A neural draft. cells: int32 [m], the cell that each node's survival came from."""

    cells: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))

    def keep(self, mask: npt.NDArray[np.bool_]) -> DraftTree:
        kept = DraftTree.keep(self, mask)
        if kept is self:
            return self
        row_kept = [True]
        for is_asked, parent in zip(mask.tolist(), self.parents.tolist(), strict=True):
            row_kept.append(is_asked and row_kept[parent])
        cells = self.cells[np.array(row_kept[1:], bool)]
        return ScoredTree(kept.tokens, kept.parents, kept.depths, kept.survival, kept.source, cells)


@dataclass(frozen=True, slots=True)
class ScoredNodes:
    """Nodes as a drafter chose them: tokens, parents, depths as in `DraftTree`.

    log_odds: float64 [m], log-confidence of each node given its parent (<= 0).
    ranks:    int32 [m], place among its parent's candidates, 0 for the best.
    """

    tokens: IntArray
    parents: IntArray
    depths: IntArray
    log_odds: WeightRow
    ranks: IntArray

    def __len__(self) -> int:
        return len(self.tokens)


class SurvivalTable:
    """Probabilities by cell. It tells of the texts that it was learned from, so every namespace
    has its own."""

    def __init__(self) -> None:
        prior = np.tile(np.array(_MIDDLES), NUM_CELLS // len(_MIDDLES))
        self._hits = (prior * PRIOR_TRIALS).tolist()
        self._trials = [PRIOR_TRIALS] * NUM_CELLS
        self._odds = prior.copy()
        self.num_outcomes = 0

    def tree(self, nodes: ScoredNodes, source: str, *, is_sampled: bool) -> ScoredTree:
        """The nodes as a tree with survival."""
        cells = cells_of(nodes, is_sampled=is_sampled)
        survival = np.ones(len(nodes) + 1)
        odds = self._odds[cells]
        for node, parent in enumerate(nodes.parents.tolist()):
            survival[node + 1] = survival[parent] * odds[node]
        return ScoredTree(
            nodes.tokens,
            nodes.parents,
            nodes.depths,
            survival[1:].astype(np.float32),
            source,
            cells,
        )

    def learn(self, tree: ScoredTree, followed: tuple[int, ...]) -> None:
        """Counts every node whose parent came true and whose depth the text has reached."""
        is_true = [True] + [False] * len(tree)
        columns = (tree.tokens, tree.parents, tree.depths, tree.cells)
        nodes = zip(*(column.tolist() for column in columns), strict=True)
        for row, (token, parent, depth, cell) in enumerate(nodes, start=1):
            if is_true[parent] and depth <= len(followed):
                is_true[row] = followed[depth - 1] == token
                self._count(cell, is_hit=is_true[row])

    def _count(self, cell: int, *, is_hit: bool) -> None:
        self._hits[cell] += is_hit
        self._trials[cell] += 1
        if self._trials[cell] >= MAX_TRIALS:
            self._hits[cell] /= 2
            self._trials[cell] /= 2
        self._odds[cell] = min(max(self._hits[cell] / self._trials[cell], FLOOR), CEILING)
        self.num_outcomes += 1

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        hits, trials = np.array(self._hits), np.array(self._trials)
        assert ((hits >= 0) & (hits <= trials)).all(), "more hits than trials"
        assert (trials < MAX_TRIALS).all(), "counts did not fade"
        assert ((self._odds >= FLOOR) & (self._odds <= CEILING)).all()


def cells_of(nodes: ScoredNodes, *, is_sampled: bool) -> IntArray:
    """int32 [m], the cell of each node."""
    confidence = np.searchsorted(CONFIDENCE_EDGES, nodes.log_odds, side="right")
    depth = np.searchsorted(DEPTH_EDGES, nodes.depths, side="right")
    is_later = (nodes.ranks > 0).astype(np.int64)
    group = (int(is_sampled) * _NUM_DEPTHS + depth) * _NUM_RANKS + is_later
    return (group * len(_MIDDLES) + confidence).astype(np.int32)


class SurvivalTables:
    """A table per namespace, the least recently used dropped."""

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
        """Raises AssertionError if an invariant is broken."""
        assert len(self._tables) <= MAX_TABLES
        for table in self._tables.values():
            table.check_integrity()
