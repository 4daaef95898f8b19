"""The segments of one namespace: numbered files in a folder of its own."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from whiflash.trajectories import codec
from whiflash.trajectories.codec import Entry
from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.file_log.segment import Found, read_frames, scan, sound_end
from whiflash.trajectories.record import TrajectoryRecord

logger = logging.getLogger(__name__)
SUFFIX = ".log"
_MODE = 0o600


def folder_name(namespace: str) -> str:
    """A name that says nothing about the namespace and fits any file system."""
    return hashlib.blake2b(namespace.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Shelf:
    """Segments oldest first; only the last one grows. The caller serialises all calls but
    `read`, which may run beside them.

    At opening, what a crash left half-written at the end of the last segment is cut off.
    """

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._is_dirty = False
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = sorted(
            int(path.stem) for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()
        )
        # Replaced as a whole, never changed, so that `read` needs no lock.
        self.ends: dict[int, int] = {n: self._path(n).stat().st_size for n in found}
        if found:
            self._cut_torn_end(found[-1])

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}{SUFFIX}"

    def _cut_torn_end(self, number: int) -> None:
        path = self._path(number)
        end, size = sound_end(path), self.ends[number]
        if end < size:
            os.truncate(path, end)
            self.ends = {**self.ends, number: end}
            logger.warning("trajectory store: cut %d torn bytes off %s", size - end, path)

    @property
    def num_bytes(self) -> int:
        return sum(self.ends.values())

    @property
    def last(self) -> tuple[int, int]:
        """Number and end of the growing segment; (1, 0) where there is none yet."""
        return max(self.ends.items(), default=(1, 0))

    def append(self, frames: Sequence[bytes]) -> None:
        """All or none. Raises OSError."""
        data = b"".join(frames)
        number, end = self.last
        if end and end + len(data) > self._segment_bytes:
            number, end = number + 1, 0
        self._write(number, end, data)
        self.ends = {**self.ends, number: end + len(data)}
        self._is_dirty = True

    def _write(self, number: int, offset: int, data: bytes) -> None:
        file = os.open(self._path(number), os.O_RDWR | os.O_CREAT, _MODE)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(file, data[done:], offset + done)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, offset)
            raise
        finally:
            os.close(file)

    def begin_segment(self) -> None:
        """What comes next goes to a new segment."""
        number, end = self.last
        if end:
            self.ends = {**self.ends, number + 1: 0}

    def sync(self) -> None:
        """Makes what was appended survive a power failure. Raises OSError."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        number, _ = self.last
        try:
            for path in (self._path(number - 1), self._path(number), self._folder):
                if path.exists():
                    fsync(path)
        except OSError:
            self._is_dirty = True
            raise

    def read(self, number: int, offset: int, max_frames: int) -> tuple[list[Found], int, int]:
        """Frames behind a place, and the place behind them. None is found only at the end.
        Raises FileNotFoundError where the segment was trimmed away meanwhile."""
        ends = self.ends
        while True:
            end = ends.get(number, 0)
            if offset < end:
                frames = read_frames(self._path(number), offset, end, max_frames)
                if frames:
                    return frames, number, frames[-1].end
            later = [other for other in ends if other > number]
            if not later:
                return [], number, max(offset, end)
            number, offset = min(later), 0

    def first_entry(self) -> Entry | None:
        """The oldest one that was not deleted; None if there is none. Raises OSError."""
        number, offset = min(self.ends, default=1), 0
        while True:
            frames, number, offset = self.read(number, offset, 1)
            if not frames:
                return None
            if frames[0].entry is not None:
                return frames[0].entry

    def holds(self, deletion: Deletion) -> bool:
        """Whether bytes of a covered record are there, also behind a tombstone. Raises OSError."""
        return any(self._covered(number, deletion) for number in list(self.ends))

    def erase(self, deletion: Deletion) -> int:
        """Overwrites every record that the tombstone, already appended, covers; how many.
        Raises OSError."""
        return sum(self._erase_in(number, deletion) for number in list(self.ends))

    def _erase_in(self, number: int, deletion: Deletion) -> int:
        path = self._path(number)
        if not path.exists():
            return 0
        times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
        covered = self._covered(number, deletion)
        for found in covered:
            self._write(number, found.start, codec.void(found.end - found.start))
        if covered:
            fsync(path)
            os.utime(path, ns=times)  # the age of a segment is that of its last record
        return len(covered)

    def _covered(self, number: int, deletion: Deletion) -> list[Found]:
        path = self._path(number)
        if not path.exists():
            return []
        return [
            found for found in scan(path.read_bytes()[: self.ends[number]])
            if isinstance(found.entry, TrajectoryRecord) and deletion.covers(found.entry)
        ]  # fmt: skip

    def drop_oldest(self) -> int:
        """Removes the oldest segment, its bytes are returned; 0 if only the growing one is left."""
        if len(self.ends) < 2:
            return 0
        number = min(self.ends)
        num_bytes = self.ends[number]
        self.ends = {other: end for other, end in self.ends.items() if other != number}
        self._path(number).unlink(missing_ok=True)
        return num_bytes

    def oldest_age_s(self) -> float:
        """Since the last record of the oldest segment was written."""
        if not self.ends:
            return 0.0
        try:
            return time.time() - self._path(min(self.ends)).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        for number, end in self.ends.items():
            path = self._path(number)
            assert end == (path.stat().st_size if path.exists() else 0), path
        last = self.last
        assert not last[1] or sound_end(self._path(last[0])) == last[1], "a torn end"


def fsync(path: Path) -> None:
    """A file's contents, or the names in a folder, survive a power failure from here on."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
