"""All namespaces of a store folder: opened when used, kept within their limits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from whiflash.trajectories import codec
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.file_log.shelf import Shelf, folder_name
from whiflash.trajectories.log import LogLimits
from whiflash.trajectories.record import TrajectoryRecord, now_ms

MIN_SEGMENT_BYTES = 64 * 1024
MAX_SEGMENT_BYTES = 4 * 2**20
SEGMENTS_PER_QUOTA = 8


class Shelves:
    """Safe to use from several threads; writing, erasing and trimming exclude each other.
    All methods raise OSError where the disk does."""

    def __init__(self, folder: Path, limits: LogLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._shelves: dict[str, Shelf] = {}
        self._epochs: dict[str, int] = {}
        self._lock = threading.RLock()

    def shelf(self, namespace: str) -> Shelf:
        return self._shelf_in(folder_name(namespace))

    def _shelf_in(self, name: str) -> Shelf:
        known = self._shelves.get(name)
        if known is not None:
            return known
        with self._lock:
            if name not in self._shelves:
                wanted = self._limits.max_namespace_bytes // SEGMENTS_PER_QUOTA
                size = min(max(wanted, MIN_SEGMENT_BYTES), MAX_SEGMENT_BYTES)
                self._shelves[name] = Shelf(self._folder / name, size)
            return self._shelves[name]

    def namespaces(self) -> tuple[str, ...]:
        """Sorted. Folders have other names, so that the first sound entry is asked."""
        with self._lock:
            shelves = self._all()
        found = (shelf.first_entry() for shelf in shelves)
        return tuple(sorted({entry.namespace for entry in found if entry is not None}))

    def _all(self) -> list[Shelf]:
        return [self._shelf_in(path.name) for path in self._folder.iterdir() if path.is_dir()]

    def del_epoch(self, namespace: str) -> int:
        """Of the last deletion of this process; earlier ones stand in the files in order."""
        return self._epochs.get(namespace, 0)

    def append(self, namespace: str, records: Sequence[TrajectoryRecord]) -> None:
        """All or none."""
        frames = [codec.encode(record) for record in records]
        with self._lock:
            self.shelf(namespace).append(frames)

    def bury(self, deletion: Deletion) -> Deletion:
        """The tombstone first: a crash in between leaves records that every reader drops."""
        with self._lock:
            shelf = self.shelf(deletion.namespace)
            tombstone = deletion.raised(self.del_epoch(deletion.namespace), now_ms())
            is_all = deletion.kind is DeletionKind.NAMESPACE
            if is_all:
                shelf.begin_segment()
            shelf.append([codec.encode(tombstone)])
            shelf.sync()
            self._epochs[deletion.namespace] = tombstone.epoch
            if is_all:
                while shelf.drop_oldest():
                    pass
            else:
                shelf.erase(tombstone)
            _erase_sealed(self._folder / folder_name(deletion.namespace), tombstone)
            return tombstone

    def may_hold(self, deletion: Deletion) -> bool:
        """Also where segments were trimmed away, whose turns may still be drafted from."""
        if not (self._folder / folder_name(deletion.namespace)).is_dir():
            return False
        with self._lock:
            shelf = self.shelf(deletion.namespace)
            return min(shelf.ends, default=1) > 1 or shelf.holds(deletion)

    def sync(self) -> None:
        """Makes what was appended survive a power failure."""
        with self._lock:
            shelves = list(self._shelves.values())
        for shelf in shelves:
            shelf.sync()

    def trim(self) -> None:
        """Removes segments that are too old or too many."""
        with self._lock:
            shelves = self._all()
            for shelf in shelves:
                self._trim_one(shelf)
            while sum(shelf.num_bytes for shelf in shelves) > self._limits.max_bytes:
                if not max(shelves, key=lambda shelf: shelf.num_bytes).drop_oldest():
                    break

    def _trim_one(self, shelf: Shelf) -> None:
        while shelf.num_bytes > self._limits.max_namespace_bytes and shelf.drop_oldest():
            pass
        while shelf.oldest_age_s() > self._limits.max_age_s:
            shelf.begin_segment()
            if not shelf.drop_oldest():
                break

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        with self._lock:
            for shelf in self._shelves.values():
                shelf.check_integrity()


def _erase_sealed(folder: Path, tombstone: Deletion) -> None:
    """Also where no server is there to do it."""
    if any(folder.glob("*.sealed*")):
        from whiflash.trajectories.sealed.file import erase_covered

        erase_covered(folder, tombstone)
