"""A store with steps to fall back on: the shared log, then this process, then nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace

from whiflash.trajectories.codec import Entry
from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.errors import StoreClosedError, StoreUnavailableError
from whiflash.trajectories.log import (
    FLUSH_S,
    START,
    LogBatch,
    LogLevel,
    LogStatus,
    TrajectoryLog,
)
from whiflash.trajectories.record import TrajectoryRecord

logger = logging.getLogger(__name__)
_SEPARATOR = "|"  # between the two cursors


class LadderLog:
    """Implements TrajectoryLog over a durable log that may fail and a local one that does not.

    Every record goes to both, so that this process finds its own at once and also while the
    durable log is away; readers drop the copy by its `record_id`. Entries of the local log come
    first. Deletions go to both; only those of the durable log count as epochs.
    """

    def __init__(self, durable: TrajectoryLog, local: TrajectoryLog) -> None:
        self._durable = durable
        self._local = local
        self._lock = threading.Lock()
        self._is_closed = False
        self._num_lost = 0  # refused by the local log

    def append(self, record: TrajectoryRecord) -> None:
        if self._is_closed:
            raise StoreClosedError("the trajectory log is closed")
        for log in (self._durable, self._local):
            try:
                log.append(record)
            except Exception:  # the engine goes on whatever happens to the store
                with self._lock:
                    self._num_lost += 1
                if self._num_lost == 1:
                    logger.exception("a trajectory could not be taken")

    def delete(self, deletion: Deletion) -> Deletion:
        """Here in any case; raises StoreUnavailableError if the durable log was not told."""
        self._local.delete(deletion)
        return self._durable.delete(deletion)

    def may_hold(self, deletion: Deletion) -> bool:
        return self._durable.may_hold(deletion) or self._local.may_hold(deletion)

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        local_cursor, durable_cursor = _split(cursor)
        local = self._local.read(namespace, local_cursor, max_records)
        if local.entries or not local.is_end:
            return LogBatch(
                tuple(map(_without_epoch, local.entries)),
                local.cursor + _SEPARATOR + durable_cursor,
                is_end=False,
                is_confirmed=False,
            )
        try:
            batch = self._durable.read(namespace, durable_cursor, max_records)
        except StoreUnavailableError:
            return LogBatch((), local.cursor + _SEPARATOR + durable_cursor, is_confirmed=False)
        # From the start again, the local entries come again too.
        is_restart = batch.has_gap and batch.cursor == START
        return replace(
            batch, cursor=START if is_restart else local.cursor + _SEPARATOR + batch.cursor
        )

    def namespaces(self) -> tuple[str, ...]:
        return tuple(sorted({*self._local.namespaces(), *self._durable.namespaces()}))

    def wait(self, cursors: Mapping[str, str], timeout_s: float) -> set[str]:
        places = {name: _split(cursor) for name, cursor in cursors.items()}
        if self._durable.status().level is LogLevel.SHARED:
            try:
                return self._durable.wait({n: place[1] for n, place in places.items()}, timeout_s)
            except StoreUnavailableError:
                pass
        return self._local.wait({n: place[0] for n, place in places.items()}, timeout_s)

    def wake(self) -> None:
        self._durable.wake()
        self._local.wake()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        return self._durable.flush(timeout_s)

    @property
    def num_dropped(self) -> int:
        """Records that the durable log gave up. The local one keeps what it has room for."""
        return self._durable.num_dropped + self._num_lost

    def status(self) -> LogStatus:
        durable = self._durable.status()
        level = durable.level
        if level is not LogLevel.SHARED:
            local = self._local.status().level
            level = LogLevel.LOCAL if local is LogLevel.SHARED else LogLevel.OFF
        return replace(durable, level=level, num_dropped=self.num_dropped)

    def close(self, timeout_s: float = FLUSH_S) -> None:
        self._is_closed = True
        self._durable.close(timeout_s)
        self._local.close(timeout_s)

    def check_integrity(self) -> None:
        self._durable.check_integrity()
        self._local.check_integrity()


def _split(cursor: str) -> tuple[str, str]:
    if cursor == START:
        return START, START
    local, separator, durable = cursor.partition(_SEPARATOR)
    if not separator:
        raise ValueError(f"cursor {cursor!r} was not given out by this log")
    return local, durable


def _without_epoch(entry: Entry) -> Entry:
    return replace(entry, epoch=0) if isinstance(entry, Deletion) else entry
