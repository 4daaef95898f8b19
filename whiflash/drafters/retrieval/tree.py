"""A draft tree that remembers why each node was drafted, so that its outcome can be learned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree, IntArray


def _no_cells() -> IntArray:
    return np.zeros(0, np.int32)


def _no_firsts() -> IntArray:
    return np.zeros((0, 2), np.int32)


@dataclass(frozen=True, slots=True)
class RetrievedTree(DraftTree):
    """cells:  int32 [m], the learned probability that each node fell under.
    firsts: int32 [sources, 2], token and cell (-1: none) of every source's likeliest first node.
            They are scored too, or a source that lost once could never win again.
    """

    cells: IntArray = field(default_factory=_no_cells)
    firsts: IntArray = field(default_factory=_no_firsts)

    def keep(self, mask: npt.NDArray[np.bool_]) -> DraftTree:
        kept = DraftTree.keep(self, mask)
        if kept is self:
            return self
        row_kept = [True]
        for is_asked, parent in zip(mask.tolist(), self.parents.tolist(), strict=True):
            row_kept.append(is_asked and row_kept[parent])
        cells = self.cells[np.array(row_kept[1:], bool)]
        return RetrievedTree(
            kept.tokens, kept.parents, kept.depths, kept.survival, kept.source, cells, self.firsts
        )
