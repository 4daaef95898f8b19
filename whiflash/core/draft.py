"""The proposal of a drafter: always a tree, a chain being the special case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Draft nodes in an order where parents come before children.

    Row r of the verify forward is the root for r = 0 and node r - 1 otherwise, so `parents`
    holds *row* numbers: 0 is the root, i + 1 is node i.

    tokens:   int32 [m], target token ids.
    parents:  int32 [m], row of the parent; parents[i] <= i.
    depths:   int32 [m], 1 for children of the root.
    survival: float32 [m], probability that the node will be accepted (not capped by the parent's
              here; `routing.trim` caps it).
    source:   what the nodes came from, for statistics ("context", "live", "prediction", ...).
    """

    tokens: IntArray
    parents: IntArray
    depths: IntArray
    survival: FloatArray
    source: str = ""

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def empty(cls) -> DraftTree:
        none = np.zeros(0, np.int32)
        return cls(none, none, none, np.zeros(0, np.float32))

    @classmethod
    def chain(
        cls,
        tokens: Sequence[int] | IntArray,
        survival: Sequence[float] | FloatArray | None = None,
        source: str = "",
    ) -> DraftTree:
        """One path below the root. Without `survival` every node counts as certain."""
        ids = np.asarray(tokens, np.int32)
        count = len(ids)
        odds = np.ones(count, np.float32) if survival is None else np.asarray(survival, np.float32)
        rows = np.arange(count, dtype=np.int32)
        return cls(ids, rows, rows + 1, odds, source)

    @classmethod
    def from_parents(
        cls,
        tokens: Sequence[int],
        parents: Sequence[int],
        survival: Sequence[float] | None = None,
        source: str = "",
    ) -> DraftTree:
        """A tree given by parent rows; depths are derived. Raises ValueError if ill-formed."""
        rows = np.asarray(parents, np.int32)
        depth_of_row = np.zeros(len(rows) + 1, np.int32)
        for node, parent in enumerate(rows):
            if not 0 <= parent <= node:
                raise ValueError(f"node {node} has parent row {parent}; parents come first")
            depth_of_row[node + 1] = depth_of_row[parent] + 1
        odds = np.ones(len(rows)) if survival is None else survival
        return cls(
            np.asarray(tokens, np.int32),
            rows,
            depth_of_row[1:],
            np.asarray(odds, np.float32),
            source,
        )

    @property
    def is_chain(self) -> bool:
        """Whether it is one path: parents come first, so depth m at node m leaves no branch."""
        return self.depths.size == 0 or bool(self.depths[-1] == self.depths.size)

    @property
    def max_depth(self) -> int:
        return int(self.depths.max()) if len(self) else 0

    def keep(self, mask: npt.NDArray[np.bool_]) -> DraftTree:
        """The nodes where `mask` holds *and* whose ancestors are all kept, renumbered."""
        row_kept = np.ones(len(self) + 1, bool)
        for node in range(len(self)):
            row_kept[node + 1] = mask[node] and row_kept[self.parents[node]]
        kept = row_kept[1:]
        if kept.all():
            return self
        new_row = np.cumsum(row_kept, dtype=np.int32) - 1
        return DraftTree(
            self.tokens[kept],
            new_row[self.parents[kept]].astype(np.int32),
            self.depths[kept],
            self.survival[kept],
            self.source,
        )

    def limited(self, max_nodes: int, max_depth: int) -> DraftTree:
        """The first `max_nodes` nodes no deeper than `max_depth`."""
        mask = (np.arange(len(self)) < max_nodes) & (self.depths <= max_depth)
        return self.keep(mask)

    def path_tokens(self, row: int) -> list[int]:
        """Tokens from the root's child down to `row` (empty for row 0)."""
        path: list[int] = []
        while row > 0:
            path.append(int(self.tokens[row - 1]))
            row = int(self.parents[row - 1])
        return path[::-1]

    def children(self) -> list[dict[int, int]]:
        """Per row, token id -> row of the first child with it."""
        table: list[dict[int, int]] = [{} for _ in range(len(self) + 1)]
        for node, (parent, token) in enumerate(zip(self.parents, self.tokens, strict=True)):
            table[parent].setdefault(int(token), node + 1)
        return table

    def flaw(self) -> str | None:
        """What is ill-formed about this tree, or None. Cheap: a few vector operations."""
        count = len(self.tokens)
        if not count == len(self.parents) == len(self.depths) == len(self.survival):
            return "its arrays differ in length"
        if not ((self.parents >= 0) & (self.parents <= np.arange(count))).all():
            return "a parent does not come before its child"
        depth_of_row = np.concatenate([np.zeros(1, np.int32), self.depths])
        if not np.array_equal(self.depths, depth_of_row[self.parents] + 1):
            return "its depths do not follow from its parents"
        if not ((self.survival >= 0) & (self.survival <= 1)).all():
            return "a survival is no probability"
        return None

    def valid_for(self, vocab_size: int) -> DraftTree:
        """Without nodes (and their descendants) whose id the target does not have."""
        return self.keep((self.tokens >= 0) & (self.tokens < vocab_size))
