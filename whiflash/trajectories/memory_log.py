"""A trajectory log that lives and dies with the process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from whiflash.core.errors import ConfigError
from whiflash.trajectories.log import START, LogBatch
from whiflash.trajectories.record import TrajectoryRecord, require_namespace

DEFAULT_MAX_BYTES = 64 * 2**20


@dataclass(slots=True)
class _Stream:
    """Records of one namespace; `first` is the number of the oldest one still held."""

    first: int = 0
    num_bytes: int = 0
    records: deque[TrajectoryRecord] = field(default_factory=deque)

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class MemoryLog:
    """Implements TrajectoryLog. Over `max_bytes` the namespace that holds most gives up its
    oldest records, so that a loud neighbour costs a quiet one nothing."""

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        if max_bytes < 1:
            raise ConfigError(f"the trajectory log needs room, got max_bytes={max_bytes}")
        self._max_bytes = max_bytes
        self._streams: dict[str, _Stream] = {}
        self._news = threading.Condition()
        self._num_bytes = 0
        self._num_dropped = 0
        self._is_closed = False
        self._is_woken = False

    def append(self, record: TrajectoryRecord) -> None:
        with self._news:
            if self._is_closed:
                raise ValueError("the trajectory log is closed")
            stream = self._streams.setdefault(record.namespace, _Stream())
            stream.records.append(record)
            stream.num_bytes += record.num_bytes
            self._num_bytes += record.num_bytes
            while self._num_bytes > self._max_bytes:
                self._drop_oldest(max(self._streams.values(), key=lambda s: s.num_bytes))
            self._news.notify_all()

    def _drop_oldest(self, stream: _Stream) -> None:
        dropped = stream.records.popleft()
        stream.first += 1
        stream.num_bytes -= dropped.num_bytes
        self._num_bytes -= dropped.num_bytes
        self._num_dropped += 1

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        require_namespace(namespace)
        with self._news:
            stream = self._streams.get(namespace, _Stream())
            wanted = _position(cursor, stream)
            begin = max(wanted, stream.first)
            skipped = begin - stream.first
            records = tuple(islice(stream.records, skipped, skipped + max_records))
            has_gap = cursor != START and wanted < stream.first
            return LogBatch(records, str(begin + len(records)), has_gap)

    def wait(self, cursors: Mapping[str, str], timeout_s: float) -> bool:
        with self._news:
            self._news.wait_for(
                lambda: self._is_woken or self._is_closed or self._has_news(cursors), timeout_s
            )
            self._is_woken = False
            return not self._is_closed and self._has_news(cursors)

    def _has_news(self, cursors: Mapping[str, str]) -> bool:
        known = ((self._streams.get(name), cursor) for name, cursor in cursors.items())
        return any(stream and _position(cursor, stream) < stream.end for stream, cursor in known)

    def wake(self) -> None:
        with self._news:
            self._is_woken = True
            self._news.notify_all()

    @property
    def num_dropped(self) -> int:
        return self._num_dropped

    @property
    def num_bytes(self) -> int:
        """Memory of the tokens held."""
        return self._num_bytes

    def close(self) -> None:
        with self._news:
            self._is_closed = True
            self._news.notify_all()

    def check_integrity(self) -> None:
        with self._news:
            total = 0
            for namespace, stream in self._streams.items():
                held = sum(record.num_bytes for record in stream.records)
                assert stream.num_bytes == held, (namespace, stream.num_bytes, held)
                assert all(record.namespace == namespace for record in stream.records), namespace
                total += held
            assert self._num_bytes == total <= self._max_bytes, (self._num_bytes, total)


def _position(cursor: str, stream: _Stream) -> int:
    if cursor == START:
        return stream.first
    if not cursor.isdecimal() or int(cursor) > stream.end:
        raise ValueError(f"cursor {cursor!r} was not given out by this log")
    return int(cursor)
