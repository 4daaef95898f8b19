"""The working arrays of one lookup: what is asked of each row, and what was found."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.index import layout

Ids = npt.NDArray[np.int32]
Odds = npt.NDArray[np.float32]


class LookupBatch:
    """Reused from call to call; it grows to the largest batch seen.

    rows:      int64 [R, NUM_ROW_COLUMNS].
    tails:     int32 [R, MAX_MATCH_TOKENS], the last ids of each context, right-aligned.
    nodes:     int32 [R, NUM_NODE_ROWS, MAX_NODES], the best draft so far.
    survival:  float32 [R, MAX_NODES].
    summaries: float64 [R, NUM_SUMMARY_FIELDS].
    """

    def __init__(self, max_rows: int = 32) -> None:
        self._allocate(max_rows)

    def _allocate(self, max_rows: int) -> None:
        self.rows = np.zeros((max_rows, layout.NUM_ROW_COLUMNS), np.int64)
        self.tails = np.zeros((max_rows, layout.MAX_MATCH_TOKENS), np.int32)
        self.nodes = np.zeros((max_rows, layout.NUM_NODE_ROWS, layout.MAX_NODES), np.int32)
        self.survival = np.zeros((max_rows, layout.MAX_NODES), np.float32)
        self.summaries = np.zeros((max_rows, layout.NUM_SUMMARY_FIELDS), np.float64)

    def begin(self, num_rows: int) -> None:
        """Forgets the last batch."""
        if num_rows > len(self.rows):
            self._allocate(max(num_rows, 2 * len(self.rows)))
        self.summaries[:num_rows] = 0

    def ask(
        self, row: int, reader: int, context: Ids, is_forked: bool, max_nodes: int, max_depth: int
    ) -> None:
        """States one row's question. `is_forked`: the context does not extend the last one."""
        self.rows[row] = (reader, len(context), is_forked, max_nodes, max_depth)
        known = min(len(context), layout.MAX_MATCH_TOKENS)
        self.tails[row, layout.MAX_MATCH_TOKENS - known :] = context[len(context) - known :]
