"""A draft tree that remembers why each node was drafted, so that its outcome can be learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree, IntArray

Outcomes = Iterator[tuple[int, bool]]


def _no_cells() -> IntArray:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class RetrievedTree(DraftTree):
    """cells:  int32 [m], the learned probability that each node fell under.
    probes: (token, cell) of the likeliest first node of the sources that were not chosen; they
            are scored too, or a source that lost once could never win again."""

    cells: IntArray = field(default_factory=_no_cells)
    probes: tuple[tuple[int, int], ...] = ()

    def keep(self, mask: npt.NDArray[np.bool_]) -> DraftTree:
        kept = DraftTree.keep(self, mask)
        if kept is self:
            return self
        row_kept = [True]
        for is_asked, parent in zip(mask.tolist(), self.parents.tolist(), strict=True):
            row_kept.append(is_asked and row_kept[parent])
        return RetrievedTree(
            kept.tokens, kept.parents, kept.depths, kept.survival, kept.source,
            self.cells[np.array(row_kept[1:], bool)], self.probes,
        )  # fmt: skip

    def outcomes(self, followed: tuple[int, ...]) -> Outcomes:
        """(cell, whether the node came true) of every node whose parent came true and whose
        depth the text has reached; all others are censored."""
        on_path = [True]
        nodes = zip(
            self.tokens.tolist(), self.parents.tolist(), self.depths.tolist(),
            self.cells.tolist(), strict=True,
        )  # fmt: skip
        for token, parent, depth, cell in nodes:
            is_scored = on_path[parent] and depth <= len(followed)
            is_hit = is_scored and followed[depth - 1] == token
            on_path.append(is_hit)
            if is_scored:
                yield cell, is_hit
        if followed:
            for token, cell in self.probes:
                yield cell, followed[0] == token
