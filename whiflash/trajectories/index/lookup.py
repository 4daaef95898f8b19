"""The working arrays of one lookup: what is asked of each row, and what was found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.index import layout

Ids = npt.NDArray[np.int32]
Odds = npt.NDArray[np.float32]


class LookupBatch:
    """Arrays of one batch after the other; those of results are new for each.

    rows:      int64 [R, NUM_ROW_COLUMNS], the questions.
    tails:     int32 [R, MAX_MATCH_TOKENS], the last ids of each context, right-aligned.
    nodes:     int32 [R, NUM_NODE_ROWS, MAX_NODES], the best draft so far.
    survival:  float32 [R, MAX_NODES].
    firsts:    int32 [R, NUM_SOURCES, 2], the likeliest first node of each source; cell -1: none.
    summaries: float64 [R, NUM_SUMMARY_FIELDS].
    winners:   int64 [R, NUM_WINNER_COLUMNS], who holds the longest match in earlier runs.
    spots:     int64 [R, MAX_SPOTS], occurrences in the sealed segment that won.
    """

    def __init__(self) -> None:
        self.begin([])

    def begin(self, rows: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Forgets the last batch. A row says: reader, tokens of its context, how often the
        context was exchanged for another, most nodes, most depth. The context itself follows."""
        num_rows = len(rows)
        self.rows = np.array(rows, np.int64).reshape(num_rows, layout.NUM_ROW_COLUMNS)
        self.tails = np.empty((num_rows, layout.MAX_MATCH_TOKENS), np.int32)
        self.nodes = np.empty((num_rows, layout.NUM_NODE_ROWS, layout.MAX_NODES), np.int32)
        self.survival = np.empty((num_rows, layout.MAX_NODES), np.float32)
        self.firsts = np.full((num_rows, layout.NUM_SOURCES, 2), -1, np.int32)
        self.summaries = np.zeros((num_rows, layout.NUM_SUMMARY_FIELDS))
        self.winners = np.empty((num_rows, layout.NUM_WINNER_COLUMNS), np.int64)
        self.spots = np.empty((num_rows, layout.MAX_SPOTS), np.int64)
