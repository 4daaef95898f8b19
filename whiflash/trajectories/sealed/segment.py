"""A sealed segment in use: the mapped file and the states of its runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.sealed.fences import SearchAids
from whiflash.trajectories.sealed.file import SegmentData, read_segment
from whiflash.trajectories.sealed.ledger import Ledger, Mask
from whiflash.trajectories.sealed.text import DEAD, TOKEN_BYTES, UNCONFIRMED, code_at
from whiflash.trajectories.sealed.volume import Part

MAX_DEAD_SHARE = 0.125  # of expired tokens, before they are cut out
_NUM_CHECKED = 128


class Segment:
    """One file. `number` is that of its name; `has_file` is False once the file was removed, for it
    held what was deleted: it goes on to be mapped until the rest has been written anew."""

    def __init__(self, path: Path, data: SegmentData, state: int) -> None:
        self.path = path
        self.number = int(path.stem)
        self.data = data
        self.aids = SearchAids.of(data.text, data.order)
        self.ledger = Ledger(data.directory, state)
        self.has_file = True

    @classmethod
    def opened(cls, path: Path, namespace: str, state: int = UNCONFIRMED) -> Segment:
        """Raises OSError, CorruptRecordError."""
        return cls(path, read_segment(path, namespace), state)

    @property
    def num_tokens(self) -> int:
        return self.data.directory.num_tokens

    @property
    def num_bytes(self) -> int:
        """Mapped text and order, and the memory of the search aids and the directory."""
        mapped = self.data.text.nbytes + self.data.order.nbytes
        return mapped + self.aids.num_bytes + self.ledger.num_bytes

    @property
    def newest_ms(self) -> int:
        return int(self.data.directory.times_ms.max())

    @property
    def must_compact(self) -> bool:
        """Its bytes hold what was deleted, or much that expired."""
        return not self.has_file or self.ledger.dead_share() > MAX_DEAD_SHARE

    def covered(self, deletion: Deletion) -> Mask:
        """bool [R]: the runs that a tombstone met now covers. Unconfirmed ones come behind it, if
        they come at all."""
        return np.asarray(
            self.data.directory.covered(deletion) & (self.ledger.states != UNCONFIRMED), np.bool_
        )

    def remove_file(self) -> None:
        """Idempotent. Raises OSError."""
        self.has_file = False
        self.path.unlink(missing_ok=True)

    def part(self) -> Part:
        """What is left of it, for a segment in its stead."""
        return self.data.directory, self.data.text, self.ledger.states != DEAD

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken. Order is checked in samples."""
        self.ledger.check_integrity()
        directory, text, order = self.data.directory, self.data.text, self.data.order
        assert len(text) == TOKEN_BYTES * directory.num_tokens
        assert len(order) == directory.num_tokens - len(directory)
        if len(order):
            assert 0 <= int(order.min()) <= int(order.max()) < directory.num_tokens
            assert len(np.unique(order)) == len(order), "a position twice"
        for place in range(0, len(order) - 1, max(len(order) // _NUM_CHECKED, 1)):
            left, right = int(order[place]), int(order[place + 1])
            assert self._suffix(left) <= self._suffix(right), "the order is none"

    def _suffix(self, position: int) -> list[int]:
        end = min(position + 32, self.num_tokens)
        return [int(code_at(self.data.text, place)) for place in range(position, end)]
