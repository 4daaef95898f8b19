"""The log that every index is built from: cursors, bounds, waiting."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from whiflash.core.errors import ConfigError
from whiflash.trajectories.codec import encode
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import StoreClosedError
from whiflash.trajectories.log import START, TrajectoryLog
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord


def record(namespace: str, first: int, num_tokens: int = 4) -> TrajectoryRecord:
    return TrajectoryRecord(namespace, "", np.arange(first, first + num_tokens))


def firsts(log: MemoryLog, namespace: str, cursor: str = START) -> list[int]:
    return [int(entry.tokens[0]) for entry in log.read(namespace, cursor).records]


def test_it_is_a_trajectory_log() -> None:
    assert isinstance(MemoryLog(), TrajectoryLog)


def test_a_cursor_goes_on_where_the_last_read_ended(integrity: Any) -> None:
    log = integrity(MemoryLog())
    for first in range(5):
        log.append(record("a", first))
    batch = log.read("a", START, max_records=3)
    assert [int(entry.tokens[0]) for entry in batch.records] == [0, 1, 2]
    assert firsts(log, "a", batch.cursor) == [3, 4]
    end = log.read("a", batch.cursor).cursor
    assert firsts(log, "a", end) == []
    log.append(record("a", 5))
    assert firsts(log, "a", end) == [5]


def test_namespaces_see_their_own_records_only(integrity: Any) -> None:
    log = integrity(MemoryLog())
    log.append(record("a", 1))
    log.append(record("b", 2))
    assert firsts(log, "a") == [1]
    assert firsts(log, "b") == [2]
    assert firsts(log, "c") == []


def test_over_its_bound_the_largest_namespace_pays_and_its_reader_is_told(integrity: Any) -> None:
    size = len(encode(record("noisy", 100)))
    log = integrity(MemoryLog(max_bytes=10 * size))
    log.append(record("quiet", 100))
    start = log.read("noisy", START).cursor
    for first in range(12):
        log.append(record("noisy", first))
    assert firsts(log, "quiet") == [100]
    assert firsts(log, "noisy") == list(range(3, 12))
    assert log.num_dropped == 3
    assert log.num_bytes == 10 * size
    assert log.read("noisy", start).has_gap
    assert not log.read("noisy", START).has_gap
    assert not log.read("noisy", log.read("noisy", START).cursor).has_gap


def test_a_deleted_record_gives_its_memory_back_and_keeps_cursors_right(integrity: Any) -> None:
    log = integrity(MemoryLog())
    for first in range(4):
        log.append(TrajectoryRecord("a", f"r{first % 2}", np.arange(first, first + 400)))
    middle = log.read("a", START, max_records=2).cursor
    before = log.num_bytes
    log.delete(Deletion("a", DeletionKind.RUN, "r1"))
    assert log.num_bytes < 0.6 * before
    assert firsts(log, "a", middle) == [2]
    assert log.num_dropped == 0


def test_a_foreign_cursor_and_a_missing_namespace_are_refused() -> None:
    log = MemoryLog()
    for cursor in ("7", "x", "-1"):
        with pytest.raises(ValueError, match="cursor"):
            log.read("a", cursor)
    with pytest.raises(ValueError, match="namespace is required"):
        log.read("", START)
    with pytest.raises(ConfigError):
        MemoryLog(max_bytes=0)


def test_waiting_ends_with_news_of_the_asked_namespaces_only() -> None:
    log = MemoryLog()
    log.append(record("a", 1))
    assert log.wait({"a": START}, 5.0)
    end = log.read("a", START).cursor
    log.append(record("b", 1))
    assert not log.wait({"a": end}, 0.02)
    threading.Timer(0.05, log.append, [record("a", 2)]).start()
    assert log.wait({"a": end}, 5.0)


def test_wake_and_close_end_a_wait() -> None:
    log = MemoryLog()
    log.wake()
    started = time.perf_counter()
    assert not log.wait({"a": START}, 5.0)
    threading.Timer(0.05, log.close).start()
    assert not log.wait({"a": START}, 5.0)
    assert time.perf_counter() - started < 4
    with pytest.raises(StoreClosedError, match="closed"):
        log.append(record("a", 1))
