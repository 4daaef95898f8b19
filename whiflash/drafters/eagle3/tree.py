"""One row's tree while it grows: its level, and what each node of the level sees."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from whiflash.core.rows import DraftRow
from whiflash.drafters.trees.ddtree import Candidates
from whiflash.drafters.trees.growth import Growth
from whiflash.models.draft.cache import DraftCache


class GrowingTree:
    """depth: of the present level (0 = the root). tokens: int32 [w] and features: [w, h] of the
    level's nodes; seen: bool [w, t], the scratch rows that each sees, the level's own last."""

    def __init__(self, cache: DraftCache, row: DraftRow, growth: Growth) -> None:
        self.cache, self.row, self.growth = cache, row, growth
        self.depth = 0
        self.tokens = row.context[-1:]
        self.features = torch.empty(0)
        self.seen = np.zeros((1, 0), bool)

    @property
    def width(self) -> int:
        return len(self.tokens)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """A node of depth d is drafted at position S + d - 1, its parent's feature being there."""
        return np.full(self.width, len(self.row.context) + self.depth - 2, np.int64)

    def grow(self, candidates: Candidates, features: torch.Tensor) -> bool:
        """Takes the candidates of the level's nodes and what the head made of them [w, h]. False
        where the tree is complete."""
        beam = self.growth.grow(candidates)
        if beam is None or not len(beam):
            return False
        self.depth += 1
        self.tokens = beam.tokens
        self.features = features[torch.from_numpy(beam.parents).to(features.device)]
        above = self.seen[beam.parents]
        self.seen = np.concatenate([above, np.eye(len(beam), dtype=bool)], axis=1)
        return True
