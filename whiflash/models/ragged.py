"""The rows of one forward: many sequences' chunks, roots, chains and trees in one flat batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whiflash.core.protocols import ForwardSegment
from whiflash.models.cache import SlabCache

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowSpan:
    """One segment's place in the batch: rows [start, start + count) behind `committed` positions.

    parents: int32 [count], -1 = follows the committed positions. depths: int32 [count].
    """

    cache: SlabCache
    start: int
    count: int
    committed: int
    parents: Int32
    depths: Int32
    is_chain: bool

    def path(self, row: int) -> list[int]:
        """Rows from the first below the committed positions down to `row`."""
        path: list[int] = []
        while row >= 0:
            path.append(row)
            row = int(self.parents[row])
        return path[::-1]

    def ancestors(self) -> npt.NDArray[np.bool_]:
        """bool [count, count]: whether row j is row i or above it."""
        if self.is_chain:
            return np.tril(np.ones((self.count, self.count), bool))
        seen = np.eye(self.count, dtype=bool)
        for row, parent in enumerate(self.parents):
            if parent >= 0:
                seen[row] |= seen[parent]
        return seen


@dataclass(frozen=True, slots=True)
class RaggedRows:
    """The flat batch. Rows from `num_rows` on are padding: they read no cache and write none.

    token_ids, positions: int64 [T]; logit_rows: int64 [R], rows whose logits are asked for.
    """

    token_ids: Int64
    positions: Int64
    logit_rows: Int64
    spans: tuple[RowSpan, ...]
    num_rows: int

    @classmethod
    def pack(cls, segments: Sequence[ForwardSegment], min_rows: int = 1) -> RaggedRows:
        """Lay the segments out in order, padded to `min_rows`. Raises ValueError on a segment
        that breaks the contract of `core.protocols`."""
        spans: list[RowSpan] = []
        start = 0
        for segment in segments:
            spans.append(_span(segment, start))
            start += spans[-1].count
        if not spans or len({id(span.cache) for span in spans}) != len(spans):
            raise ValueError("a forward needs at least one segment, and each cache only once")
        padding = np.zeros(max(min_rows - start, 0), np.int64)
        return cls(
            token_ids=np.concatenate([*(s.token_ids for s in segments), padding]),
            positions=np.concatenate([*(s.committed + s.depths for s in spans), padding]),
            logit_rows=_logit_rows(segments, spans),
            spans=tuple(spans),
            num_rows=start,
        )


def _logit_rows(segments: Sequence[ForwardSegment], spans: Sequence[RowSpan]) -> Int64:
    ends = [span.start + span.count for span in spans]
    asked = [
        np.arange(end - segment.num_logits, end)
        for segment, end in zip(segments, ends, strict=True)
    ]
    return np.concatenate(asked)


def _span(segment: ForwardSegment, start: int) -> RowSpan:
    cache, count = segment.cache, len(segment.token_ids)
    if not isinstance(cache, SlabCache):
        raise ValueError(f"a {type(cache).__name__} is not a cache of this target")
    if count == 0 or not 0 <= segment.num_logits <= count:
        raise ValueError(f"a segment of {count} rows cannot give {segment.num_logits} logits")
    chain = np.arange(-1, count - 1, dtype=np.int32)
    parents = chain if segment.parents is None else np.asarray(segment.parents, np.int32)
    if parents.shape != chain.shape or (parents < -1).any() or (parents > chain).any():
        raise ValueError(f"parents {parents.tolist()} do not come before their {count} rows")
    is_chain = bool((parents == chain).all())
    depths = chain + np.int32(1) if is_chain else _depths(parents)
    return RowSpan(cache, start, count, cache.length, parents, depths, is_chain)


def _depths(parents: Int32) -> Int32:
    depths = np.zeros(len(parents), np.int32)
    for row, parent in enumerate(parents):
        depths[row] = depths[parent] + 1 if parent >= 0 else 0
    return depths
