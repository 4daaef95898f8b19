"""A trajectory log that lives and dies with the process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from whiflash.core.errors import ConfigError
from whiflash.trajectories import codec
from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.errors import StoreClosedError
from whiflash.trajectories.log import FLUSH_S, START, LogBatch, LogLevel, LogStatus
from whiflash.trajectories.record import TrajectoryRecord, now_ms, require_namespace

DEFAULT_MAX_BYTES = 64 * 2**20


@dataclass(slots=True)
class _Stream:
    """Frames of one namespace; `first` is the number of the oldest one still held. A deleted
    record leaves an empty frame, so that cursors keep their meaning."""

    first: int = 0
    num_bytes: int = 0
    del_epoch: int = 0
    frames: deque[bytes] = field(default_factory=deque)

    @property
    def end(self) -> int:
        return self.first + len(self.frames)


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
        self._num_written = 0
        self._num_dropped = 0
        self._is_closed = False
        self._is_woken = False

    def append(self, record: TrajectoryRecord) -> None:
        frame = codec.encode(record)
        with self._news:
            self._add(record.namespace, frame)
            self._num_written += 1

    def _add(self, namespace: str, frame: bytes) -> None:
        if self._is_closed:
            raise StoreClosedError("the trajectory log is closed")
        stream = self._streams.setdefault(namespace, _Stream())
        stream.frames.append(frame)
        stream.num_bytes += len(frame)
        self._num_bytes += len(frame)
        while self._num_bytes > self._max_bytes:
            self._drop_oldest(max(self._streams.values(), key=lambda s: s.num_bytes))
        self._news.notify_all()

    def _drop_oldest(self, stream: _Stream) -> None:
        dropped = stream.frames.popleft()
        stream.first += 1
        stream.num_bytes -= len(dropped)
        self._num_bytes -= len(dropped)
        self._num_dropped += dropped != b""

    def delete(self, deletion: Deletion) -> Deletion:
        with self._news:
            stream = self._streams.setdefault(deletion.namespace, _Stream())
            tombstone = deletion.raised(stream.del_epoch, now_ms())
            stream.del_epoch = tombstone.epoch
            for place, frame in enumerate(stream.frames):
                if _is_covered(frame, tombstone):
                    stream.frames[place] = b""
                    stream.num_bytes -= len(frame)
                    self._num_bytes -= len(frame)
            self._add(deletion.namespace, codec.encode(tombstone))
            return tombstone

    def may_hold(self, deletion: Deletion) -> bool:
        """Also what was given up here may still be drafted from."""
        with self._news:
            stream = self._streams.get(deletion.namespace, _Stream())
            return stream.first > 0 or any(_is_covered(f, deletion) for f in stream.frames)

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        require_namespace(namespace)
        with self._news:
            stream = self._streams.get(namespace, _Stream())
            wanted = _position(cursor, stream)
            begin = max(wanted, stream.first)
            skipped = begin - stream.first
            frames = list(islice(stream.frames, skipped, skipped + max_records))
            end, del_epoch = stream.end, stream.del_epoch
            has_gap = cursor != START and wanted < stream.first
        found = (codec.decode(frame) for frame in frames if frame)
        entries = tuple(entry for entry in found if entry is not None)
        position = begin + len(frames)
        return LogBatch(entries, str(position), has_gap, position >= end, del_epoch)

    def namespaces(self) -> tuple[str, ...]:
        with self._news:
            return tuple(sorted(name for name, held in self._streams.items() if any(held.frames)))

    def wait(self, cursors: Mapping[str, str], timeout_s: float) -> set[str]:
        with self._news:
            self._news.wait_for(
                lambda: self._is_woken or self._is_closed or self._behind(cursors), timeout_s
            )
            self._is_woken = False
            return set() if self._is_closed else self._behind(cursors)

    def _behind(self, cursors: Mapping[str, str]) -> set[str]:
        known = ((name, self._streams.get(name), cursor) for name, cursor in cursors.items())
        return {
            name for name, stream, cursor in known
            if stream and _position(cursor, stream) < stream.end
        }  # fmt: skip

    def wake(self) -> None:
        with self._news:
            self._is_woken = True
            self._news.notify_all()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:  # noqa: ARG002 - nothing is pending
        return True

    @property
    def num_dropped(self) -> int:
        return self._num_dropped

    @property
    def num_bytes(self) -> int:
        """Memory of the frames held."""
        return self._num_bytes

    def status(self) -> LogStatus:
        level = LogLevel.OFF if self._is_closed else LogLevel.SHARED
        return LogStatus(
            "memory", "this process", level,
            num_written=self._num_written, num_dropped=self._num_dropped,
        )  # fmt: skip

    def close(self, timeout_s: float = FLUSH_S) -> None:  # noqa: ARG002 - nothing is pending
        with self._news:
            self._is_closed = True
            self._news.notify_all()

    def check_integrity(self) -> None:
        with self._news:
            total = 0
            for namespace, stream in self._streams.items():
                held = sum(map(len, stream.frames))
                assert stream.num_bytes == held, (namespace, stream.num_bytes, held)
                entries = [codec.decode(frame) for frame in stream.frames if frame]
                assert all(entry and entry.namespace == namespace for entry in entries), namespace
                total += held
            assert self._num_bytes == total <= self._max_bytes, (self._num_bytes, total)


def _is_covered(frame: bytes, deletion: Deletion) -> bool:
    entry = codec.decode(frame) if frame else None
    return isinstance(entry, TrajectoryRecord) and deletion.covers(entry)


def _position(cursor: str, stream: _Stream) -> int:
    if cursor == START:
        return stream.first
    if not cursor.isdecimal() or int(cursor) > stream.end:
        raise ValueError(f"cursor {cursor!r} was not given out by this log")
    return int(cursor)
