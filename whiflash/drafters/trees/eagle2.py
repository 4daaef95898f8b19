"""EAGLE-2's dynamic tree, which EAGLE-3 uses unchanged; with one candidate a row it is a chain.

Source: `topK_genrate` in `eagle/model/cnets.py` of SafeAILab/EAGLE (facts/drafters.md 1.4). The
reference counts `depth` steps behind the first level and the root among its `total_token` nodes:
our depth = its depth + 1, our nodes = its total_token - 1.
"""

from __future__ import annotations

import numpy as np

from whiflash.drafters.survival import ScoredNodes
from whiflash.drafters.trees.ddtree import Candidates
from whiflash.drafters.trees.growth import ROOT, Beam, Pool


class Eagle2Growth:
    """Each level's beam is the `top_k` most probable of all children of the beam before; the tree
    is the `max_nodes` most probable of all nodes that were looked at."""

    def __init__(self, max_nodes: int, max_depth: int, top_k: int) -> None:
        self._max_nodes, self._max_depth, self._top_k = max_nodes, max_depth, top_k
        self._pool = Pool()
        self._beam = np.array([ROOT])
        self._depth = 0

    @property
    def num_candidates(self) -> int:
        return self._top_k

    def grow(self, candidates: Candidates) -> Beam | None:
        self._depth += 1
        added = self._pool.add(candidates, self._beam, self._depth)
        if self._depth >= self._max_depth or not len(added):
            return None
        above, self._beam = self._beam, self._pool.best(added, self._top_k)
        return self._pool.beam(self._beam, above)

    def nodes(self) -> ScoredNodes:
        everything = np.arange(len(self._pool))
        return self._pool.chosen(self._pool.best(everything, self._max_nodes))
