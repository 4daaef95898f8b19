"""The trajectory log of one machine: segment files, written by one process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from whiflash.config import read_environment
from whiflash.trajectories.breaker import Breaker
from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.errors import StoreClosedError, StoreUnavailableError
from whiflash.trajectories.file_log.lock import WriterLock
from whiflash.trajectories.file_log.segment import Found
from whiflash.trajectories.file_log.shelves import Shelves
from whiflash.trajectories.log import FLUSH_S, START, LogBatch, LogLevel, LogLimits, LogStatus
from whiflash.trajectories.record import TrajectoryRecord, now_ms, require_namespace
from whiflash.trajectories.writer import (
    DEFAULT_QUEUE_BYTES,
    ITEM_OVERHEAD_BYTES,
    BackgroundWriter,
)

TRIM_EVERY_S = 10.0


def default_folder() -> Path:
    """The store called "file": in $WHIFLASH_DATA or the user's data folder."""
    chosen = read_environment("WHIFLASH_DATA")
    data = Path(chosen).expanduser() if chosen else Path(platformdirs.user_data_dir("whiflash"))
    return data / "trajectories"


class FileLog:
    """Implements TrajectoryLog over a folder per namespace.

    A record is in the file milliseconds after `append` and survives the end of the process then;
    it survives a power failure `fsync_s` later (None leaves that to the system). Entries older
    than `limits.max_age_s` are not handed out, and their segments are removed when the last
    record in them is that old.
    Raises StoreLockedError where another process writes there, ConfigError where nobody can.
    """

    def __init__(
        self,
        folder: Path | str,
        limits: LogLimits | None = None,
        *,
        fsync_s: float | None = 1.0,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
    ) -> None:
        self.folder = Path(folder).expanduser()
        self._limits = limits or LogLimits()
        self._fsync_s = fsync_s
        self._lock = WriterLock(self.folder)
        self._shelves = Shelves(self.folder, self._limits)
        self._news = threading.Condition()
        self._is_woken = self._is_closed = False
        self._num_corrupt = 0
        self._synced_at = time.monotonic()
        self._trimmed_at = 0.0
        self._writer: BackgroundWriter[TrajectoryRecord] = BackgroundWriter(
            "whiflash-file-log",
            self._write,
            lambda record: record.num_bytes + ITEM_OVERHEAD_BYTES,
            breaker=Breaker(),
            max_bytes=queue_bytes,
            idle=self._tidy,
        )

    # Writing: the writer's thread, but for `append` and `delete`.

    def append(self, record: TrajectoryRecord) -> None:
        self._writer.put(record)

    def _write(self, batch: deque[TrajectoryRecord]) -> None:
        while batch:
            namespace = batch[0].namespace
            count = 0
            while count < len(batch) and batch[count].namespace == namespace:
                count += 1
            self._shelves.append(namespace, [batch[place] for place in range(count)])
            for _ in range(count):
                batch.popleft()
            self._tell_readers()

    def _tell_readers(self) -> None:
        with self._news:
            self._news.notify_all()

    def delete(self, deletion: Deletion) -> Deletion:
        if self._is_closed:
            raise StoreClosedError("the trajectory log is closed")
        self._writer.discard(deletion.covers)
        try:
            tombstone = self._shelves.bury(deletion)
        except OSError as error:
            raise StoreUnavailableError(
                f"the trajectory store {self.folder} cannot be written ({error.strerror}); "
                "repeat the deletion when it can"
            ) from error
        self._tell_readers()
        return tombstone

    def may_hold(self, deletion: Deletion) -> bool:
        if self._writer.num_pending_bytes > 0:
            return True
        try:
            return self._shelves.may_hold(deletion)
        except OSError as error:
            raise StoreUnavailableError(
                f"the trajectory store {self.folder} cannot be read ({error.strerror})"
            ) from error

    def _tidy(self) -> None:
        now = time.monotonic()
        if self._fsync_s is not None and now - self._synced_at >= self._fsync_s:
            self._synced_at = now
            self._shelves.sync()
        if now - self._trimmed_at >= TRIM_EVERY_S:
            self._trimmed_at = now
            self.trim()

    def trim(self) -> None:
        """Removes segments that are too old or too many. Raises OSError."""
        self._shelves.trim()

    # Reading.

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        require_namespace(namespace)
        place = _place(cursor)
        try:
            return self._read(namespace, cursor == START, place, max_records)
        except FileNotFoundError:  # trimmed away meanwhile
            return LogBatch((), START, has_gap=True, is_end=False)
        except OSError as error:
            raise StoreUnavailableError(
                f"the trajectory store {self.folder} cannot be read ({error.strerror})"
            ) from error

    def _read(
        self, namespace: str, is_start: bool, place: tuple[int, int], max_records: int
    ) -> LogBatch:
        shelf = self._shelves.shelf(namespace)
        del_epoch = self._shelves.del_epoch(namespace)
        oldest = min(shelf.ends, default=1)
        has_gap = not is_start and (place[0] < oldest or place > shelf.last)
        frames, *place_behind = shelf.read(
            *((oldest, 0) if has_gap or is_start else place), max_records
        )
        number, offset = place_behind
        num_corrupt = sum(found.skipped > 0 for found in frames)
        self._num_corrupt += num_corrupt
        entries = tuple(found.entry for found in frames if found.entry and self._is_fresh(found))
        is_end = (number, offset) >= shelf.last
        return LogBatch(entries, f"{number}:{offset}", has_gap, is_end, del_epoch, num_corrupt)

    def _is_fresh(self, found: Found) -> bool:
        """Tombstones always are."""
        entry = found.entry
        if not isinstance(entry, TrajectoryRecord):
            return True
        return now_ms() - entry.time_ms <= 1e3 * self._limits.max_age_s

    def namespaces(self) -> tuple[str, ...]:
        try:
            return self._shelves.namespaces()
        except OSError as error:
            raise StoreUnavailableError(
                f"the trajectory store {self.folder} cannot be read ({error.strerror})"
            ) from error

    def wait(self, cursors: Mapping[str, str], timeout_s: float) -> set[str]:
        places = [
            (name, self._shelves.shelf(name), _place(cursor)) for name, cursor in cursors.items()
        ]

        def behind() -> set[str]:
            return {name for name, shelf, at in places if shelf.num_bytes and at < shelf.last}

        with self._news:
            self._news.wait_for(lambda: self._is_woken or self._is_closed or behind(), timeout_s)
            self._is_woken = False
            return set() if self._is_closed else behind()

    def wake(self) -> None:
        with self._news:
            self._is_woken = True
            self._news.notify_all()

    # Life.

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        return self._writer.flush(timeout_s)

    @property
    def num_dropped(self) -> int:
        return self._writer.num_dropped

    def status(self) -> LogStatus:
        writer = self._writer
        level = LogLevel.SHARED if writer.breaker.is_closed else LogLevel.LOCAL
        return LogStatus(
            "file", str(self.folder), LogLevel.OFF if self._is_closed else level,
            writer.num_pending_bytes, writer.num_written, writer.num_dropped,
            writer.breaker.num_failures, self._num_corrupt, writer.breaker.last_error,
            writer.breaker.is_closed, self._limits.max_age_s,
        )  # fmt: skip

    def close(self, timeout_s: float = FLUSH_S) -> None:
        if self._is_closed:
            return
        self._writer.close(timeout_s)
        try:
            if self._fsync_s is not None:
                self._shelves.sync()
        except OSError as error:
            self._writer.breaker.failure(error)
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        self._lock.release()

    def check_integrity(self) -> None:
        self._writer.check_integrity()
        self._shelves.check_integrity()


def _place(cursor: str) -> tuple[int, int]:
    """Segment and offset of a cursor; in front of all of them for START."""
    if cursor == START:
        return 0, 0
    number, _, offset = cursor.partition(":")
    if not (number.isdecimal() and offset.isdecimal()):
        raise ValueError(f"cursor {cursor!r} was not given out by this log")
    return int(number), int(offset)
