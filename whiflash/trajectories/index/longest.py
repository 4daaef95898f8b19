"""The longest match of each row in a list of sources, newest on a tie, and one draft of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.index import layout
from whiflash.trajectories.index.lookup import LookupBatch, Odds

Homes = npt.NDArray[np.int64]
"""int64 [readers]: the stamp of the source that drafted last for each reader, NOBODY at first."""
NOBODY = 0


class Source(Protocol):
    """A part of a live index, or a sealed segment. stamp: tells it from all others of its index."""

    stamp: int

    def match(
        self, batch: LookupBatch, homes: Homes, first: int, end: int, rank: int, *, is_home: bool
    ) -> None:
        """Becomes the winner `rank` of those rows of [first, end) that it matches longer than
        their winner so far, or as long if that one is older: of less rank. is_home: only of rows
        whose reader has its home here."""

    def draft(
        self, batch: LookupBatch, first: int, end: int, rank: int, odds: Odds, min_survival: float
    ) -> None:
        """Improves the drafts of the rows that it has won."""


def draft_longest(
    sources: Sequence[Source], homes: Homes, batch: LookupBatch, first: int, end: int, odds: Odds,
    min_survival: float,
) -> None:  # fmt: skip
    """Improves the drafts of rows [first, end) of `batch`. sources: oldest first.

    The source that drafted last is asked first: as a rule it has so long a match still that none
    of the others needs to be looked into. Any order gives the same winner."""
    batch.winners[first:end, layout.WINNER] = layout.NOBODY_WON
    batch.winners[first:end, layout.WINNER_LENGTH] = 0
    readers = batch.rows[first:end, layout.READER]
    wanted = set(homes[readers].tolist())
    for rank, source in enumerate(sources):
        if source.stamp in wanted:
            source.match(batch, homes, first, end, rank, is_home=True)
    for rank in reversed(range(len(sources))):
        sources[rank].match(batch, homes, first, end, rank, is_home=False)
    winners = batch.winners[first:end, layout.WINNER]
    for rank in set(winners.tolist()) - {layout.NOBODY_WON}:
        sources[rank].draft(batch, first, end, rank, odds, min_survival)
        homes[readers[winners == rank]] = sources[rank].stamp
