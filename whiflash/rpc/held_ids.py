"""Ids that a drafter has absorbed of one sequence, and a hash by which both ends compare them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
_MASK = (1 << 64) - 1


def span_hash(ids: Ids, start: int) -> int:
    """64 bits over the pairs (position, id) of ids at positions start, start + 1, ...; hashes of
    ranges that follow each other add up (mod 2^64). Mixing: splitmix64."""
    x = (np.arange(start, start + len(ids), dtype=np.uint64) << np.uint64(32)) | ids.astype(
        np.uint32
    ).astype(np.uint64)
    with np.errstate(over="ignore"):
        x += np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return int((x ^ (x >> np.uint64(31))).sum(dtype=np.uint64))


class HeldIds:
    """Ids of positions [origin, end), in a buffer that grows by doubling."""

    def __init__(self, origin: int = 0) -> None:
        self.origin = origin
        self._ids = np.empty(64, np.int32)
        self._length = 0
        self.hash = 0

    @property
    def end(self) -> int:
        """First position that is not held."""
        return self.origin + self._length

    @property
    def ids(self) -> Ids:
        """int32 [end - origin], a view."""
        return self._ids[: self._length]

    def append(self, ids: Ids) -> None:
        """The ids of positions end, end + 1, ..."""
        self.hash = (self.hash + span_hash(ids, self.end)) & _MASK
        needed = self._length + len(ids)
        if needed > len(self._ids):
            grown = np.empty(max(2 * len(self._ids), needed), np.int32)
            grown[: self._length] = self.ids
            self._ids = grown
        self._ids[self._length : needed] = ids
        self._length = needed

    def truncate(self, end: int) -> None:
        """Forget positions from `end` on."""
        kept = max(min(end - self.origin, self._length), 0)
        self.hash = (self.hash - span_hash(self._ids[kept : self._length], self.origin + kept)) & (
            _MASK
        )
        self._length = kept

    def hash_at(self, end: int) -> int:
        """Hash of [origin, end), for end up to `self.end`."""
        behind = self._ids[end - self.origin : self._length]
        return (self.hash - span_hash(behind, end)) & _MASK
