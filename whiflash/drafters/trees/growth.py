"""Trees that grow level by level, each level from one forward of an autoregressive drafter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from whiflash.drafters.survival import ScoredNodes
from whiflash.drafters.trees.ddtree import Candidates

ROOT = -1
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Beam:
    """The nodes that the drafter runs next.

    tokens: int32 [w]; parents: int64 [w], rows of the beam before (0 where that was the root).
    """

    tokens: npt.NDArray[np.int32]
    parents: Indices

    def __len__(self) -> int:
        return len(self.tokens)


class Growth(Protocol):
    """Chooses nodes. `grow` is fed the candidates of each beam's rows, first those of the root."""

    @property
    def num_candidates(self) -> int:
        """Candidates wanted of each row."""

    def grow(self, candidates: Candidates) -> Beam | None:
        """The next beam, None where the tree is complete."""

    def nodes(self) -> ScoredNodes:
        """The tree, parents before children."""


@dataclass(slots=True)
class Pool:
    """Nodes that were looked at, level by level.

    tokens, parents (pool index, ROOT for children of the root), depths, ranks, log_odds (given the
    parent), log_paths (of the whole path).
    """

    tokens: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    parents: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    depths: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    ranks: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    log_odds: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    log_paths: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, candidates: Candidates, beam: Indices, depth: int) -> Indices:
        """Adds all candidates of a beam (pool indices, or [ROOT]) that can be drawn. Returns their
        pool indices, ordered by (row of the beam, rank)."""
        rows, ranks = np.nonzero(candidates.log_weights > -np.inf)
        log_odds = candidates.log_weights[rows, ranks]
        above = np.concatenate([self.log_paths, np.zeros(1)])  # ROOT is the last
        first = len(self)
        self.log_paths = np.concatenate([self.log_paths, above[beam[rows]] + log_odds])
        self.tokens = np.concatenate([self.tokens, candidates.tokens[rows, ranks]])
        self.parents = np.concatenate([self.parents, beam[rows]])
        self.depths = np.concatenate([self.depths, np.full(len(rows), depth, np.int32)])
        self.ranks = np.concatenate([self.ranks, ranks.astype(np.int32)])
        self.log_odds = np.concatenate([self.log_odds, log_odds])
        return np.arange(first, len(self))

    def best(self, indices: Indices, count: int) -> Indices:
        """The `count` most probable of some nodes, most probable first. Among equals the earlier
        wins, so that an ancestor is never left out for its descendant."""
        return indices[np.argsort(-self.log_paths[indices], kind="stable")[:count]]

    def beam(self, indices: Indices, above: Indices) -> Beam:
        """Nodes as a beam below the beam `above` (pool indices)."""
        order = np.argsort(above)
        places = np.searchsorted(above, self.parents[indices], sorter=order)
        return Beam(self.tokens[indices], order[places])

    def chosen(self, indices: Indices) -> ScoredNodes:
        """Nodes, closed under parents, as a tree in pool order."""
        indices = np.sort(indices)
        row_of = np.zeros(len(self) + 1, np.int32)
        row_of[indices] = np.arange(1, len(indices) + 1, dtype=np.int32)
        row_of[ROOT] = 0
        return ScoredNodes(
            self.tokens[indices],
            row_of[self.parents[indices]],
            self.depths[indices],
            self.log_odds[indices],
            self.ranks[indices],
        )
