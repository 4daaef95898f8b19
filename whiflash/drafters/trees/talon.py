"""TALON's adaptive tree: deep and narrow where the drafter is confident, else shallow and wide.

Source: arXiv 2601.07353 as described in facts/paper.md 8.3 (abstract and secondary descriptions).
The first level keeps a fixed number of nodes whatever the confidence; a later level keeps the
nodes whose path probability is at least `mu` times the level's best; growth ends when the node
budget is used. Two things are not public and chosen here: every kept node has `top_k` children,
and where the budget ends inside a level the most probable nodes are kept.
"""

from __future__ import annotations

import math

import numpy as np

from whiflash.drafters.survival import ScoredNodes
from whiflash.drafters.trees.ddtree import Candidates
from whiflash.drafters.trees.growth import ROOT, Beam, Indices, Pool


class TalonGrowth:
    """Grows until `max_nodes` are used, `max_depth` is reached or nothing can be drawn."""

    def __init__(self, max_nodes: int, max_depth: int, top_k: int, mu: float) -> None:
        self._max_nodes, self._max_depth, self._top_k = max_nodes, max_depth, top_k
        self._log_gate = math.log(mu)
        self._pool = Pool()
        self._kept: list[Indices] = []
        self._beam = np.array([ROOT])
        self._num_left = max_nodes

    @property
    def num_candidates(self) -> int:
        return self._top_k

    def grow(self, candidates: Candidates) -> Beam | None:
        depth = len(self._kept) + 1
        added = self._pool.add(candidates, self._beam, depth)
        kept = self._pool.best(self._gated(added) if depth > 1 else added, self._num_left)
        self._kept.append(kept)
        self._num_left -= len(kept)
        if not len(kept) or not self._num_left or depth >= self._max_depth:
            return None
        above, self._beam = self._beam, kept
        return self._pool.beam(kept, above)

    def _gated(self, added: Indices) -> Indices:
        paths = self._pool.log_paths[added]
        gated: Indices = added[paths >= paths.max(initial=-math.inf) + self._log_gate]
        return gated

    def nodes(self) -> ScoredNodes:
        return self._pool.chosen(np.concatenate(self._kept) if self._kept else np.zeros(0, int))
