"""A sealed segment as a source of drafts."""

from __future__ import annotations

import numpy as np

from whiflash.trajectories.index import layout, sealed_search
from whiflash.trajectories.index.longest import Homes
from whiflash.trajectories.index.lookup import LookupBatch, Odds
from whiflash.trajectories.sealed.fences import SearchAids
from whiflash.trajectories.sealed.segment import Segment


class SealedSource:
    """Implements `longest.Source`, under the lock of the segment's tier."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.stamp = -segment.number

    def match(
        self, batch: LookupBatch, homes: Homes, first: int, end: int, rank: int, *, is_home: bool
    ) -> None:
        """See `longest.Source`."""
        data, ledger, aids = self._segment.data, self._segment.ledger, self._segment.aids
        sealed_search.match_rows(
            data.text, data.order, aids.fences, aids.grams, data.directory.ends, ledger.states,
            ledger.num_masked > 0, homes, batch.rows, batch.tails, batch.spots, batch.winners,
            first, end, rank, self.stamp if is_home else 0,
        )  # fmt: skip

    def draft(
        self, batch: LookupBatch, first: int, end: int, rank: int, odds: Odds, min_survival: float
    ) -> None:
        """See `longest.Source`."""
        sealed_search.draft_rows(
            self._segment.data.text, batch.rows, odds, batch.nodes, batch.survival, batch.firsts,
            batch.spots, batch.summaries, batch.winners, first, end, rank, min_survival,
        )  # fmt: skip


def warm_up() -> None:
    """Compiles the kernels of the sealed tier, or loads them from numba's cache."""
    batch = LookupBatch()
    batch.begin([(0, 1, 0, 1, 1)])
    none = np.zeros(0, np.int32)
    text, order = np.zeros(0, np.uint8), none
    aids = SearchAids.of(text, order)
    batch.winners[:] = (layout.NOBODY_WON, 0, 0)
    sealed_search.match_rows(
        text, order, aids.fences, aids.grams, none, text, True, np.zeros(1, np.int64), batch.rows,
        batch.tails, batch.spots, batch.winners, 0, 0, 0, 0,
    )  # fmt: skip
    sealed_search.draft_rows(
        text, batch.rows, np.ones(layout.NUM_CELLS, np.float32), batch.nodes, batch.survival,
        batch.firsts, batch.spots, batch.summaries, batch.winners, 0, 0, 0, 0.0,
    )  # fmt: skip
