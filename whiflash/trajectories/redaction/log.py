"""A log that secrets cannot get into."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.log import FLUSH_S, LogBatch, LogStatus, TrajectoryLog
from whiflash.trajectories.record import TrajectoryRecord, now_ms
from whiflash.trajectories.redaction.redactor import Redactor
from whiflash.trajectories.writer import (
    DEFAULT_QUEUE_BYTES,
    ITEM_OVERHEAD_BYTES,
    BackgroundWriter,
)


class RedactedLog:
    """Implements TrajectoryLog in front of another log. Text is searched on a thread of its own;
    a record that cannot be searched is left out, never written as it is."""

    def __init__(
        self, inner: TrajectoryLog, redactor: Redactor, queue_bytes: int = DEFAULT_QUEUE_BYTES
    ) -> None:
        self._inner = inner
        self._redactor = redactor
        self._num_failed = 0
        self._writer: BackgroundWriter[TrajectoryRecord] = BackgroundWriter(
            "whiflash-redaction",
            self._write,
            lambda record: record.num_bytes + ITEM_OVERHEAD_BYTES,
            max_bytes=queue_bytes,
        )

    def append(self, record: TrajectoryRecord) -> None:
        self._writer.put(record)

    def _write(self, batch: deque[TrajectoryRecord]) -> None:
        while batch:
            record = batch.popleft()
            try:
                stretches = self._redactor.split(record)
            except Exception:
                self._num_failed += 1
                raise
            for stretch in stretches:
                self._inner.append(stretch)

    def delete(self, deletion: Deletion) -> Deletion:
        asked = replace(deletion, time_ms=deletion.time_ms or now_ms())
        self._writer.discard(asked.covers)
        return self._inner.delete(asked)

    def may_hold(self, deletion: Deletion) -> bool:
        return self._writer.num_pending_bytes > 0 or self._inner.may_hold(deletion)

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        return self._inner.read(namespace, cursor, max_records)

    def namespaces(self) -> tuple[str, ...]:
        return self._inner.namespaces()

    def wait(self, cursors: Mapping[str, str], timeout_s: float) -> set[str]:
        return self._inner.wait(cursors, timeout_s)

    def wake(self) -> None:
        self._inner.wake()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        deadline = time.monotonic() + timeout_s
        is_done = self._writer.flush(timeout_s)
        return is_done and self._inner.flush(max(deadline - time.monotonic(), 0.0))

    @property
    def num_masked(self) -> int:
        """Tokens left out as secret."""
        return self._redactor.num_masked

    @property
    def num_dropped(self) -> int:
        return self._writer.num_dropped + self._num_failed + self._inner.num_dropped

    def status(self) -> LogStatus:
        inner = self._inner.status()
        return replace(
            inner,
            num_pending_bytes=inner.num_pending_bytes + self._writer.num_pending_bytes,
            num_dropped=self.num_dropped,
        )

    def close(self, timeout_s: float = FLUSH_S) -> None:
        deadline = time.monotonic() + timeout_s
        self._writer.close(timeout_s)
        self._inner.close(max(deadline - time.monotonic(), 0.0))

    def check_integrity(self) -> None:
        self._writer.check_integrity()
        self._inner.check_integrity()
