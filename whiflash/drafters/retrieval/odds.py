"""Learned probabilities that a drafted node comes true, given that its parent did."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from whiflash.trajectories.index import layout

PRIOR_ODDS = 2 / 3  # of a certain continuation (facts: retrieval, 2.3)
PRIOR_TRIALS = 3.0
FLOOR = 0.02  # no cell is ever given up, so that it goes on being tried
CEILING = 0.995
MAX_TRIALS = 256.0  # older outcomes fade: both counts are halved here
# Middles of the buckets of `layout.EDGE_SHARES`, and 1 for the two certain ones.
_MIDDLES = (0.05, 0.15, 0.275, 0.425, 0.6, 0.8, 0.95, 1.0, 1.0)


class LearnedOdds:
    """One table of `layout.NUM_CELLS` probabilities. It tells of the texts that it was learned
    from, so every namespace has its own.

    odds: float32 [NUM_CELLS], what the kernels read.
    """

    def __init__(self) -> None:
        shares = layout.NUM_CELLS // (2 * layout.NUM_EDGE_BUCKETS)
        prior = PRIOR_ODDS * np.tile(np.repeat(_MIDDLES, 2), shares)
        self._hits: list[float] = (prior * PRIOR_TRIALS).tolist()
        self._trials: list[float] = [PRIOR_TRIALS] * layout.NUM_CELLS
        self.odds = np.maximum(prior, FLOOR).astype(np.float32)
        self.num_outcomes = 0

    def learn(self, outcomes: Iterable[tuple[int, bool]]) -> None:
        """Takes (cell, came true) pairs."""
        for cell, is_hit in outcomes:
            self._hits[cell] += is_hit
            self._trials[cell] += 1
            if self._trials[cell] >= MAX_TRIALS:
                self._hits[cell] /= 2
                self._trials[cell] /= 2
            odds = self._hits[cell] / self._trials[cell]
            self.odds[cell] = min(max(odds, FLOOR), CEILING)
            self.num_outcomes += 1

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        hits, trials = np.array(self._hits), np.array(self._trials)
        assert ((hits >= 0) & (hits <= trials)).all(), "more hits than trials"
        assert (trials < MAX_TRIALS).all(), "counts did not fade"
        assert ((self.odds >= np.float32(FLOOR)) & (self.odds <= np.float32(CEILING))).all()
