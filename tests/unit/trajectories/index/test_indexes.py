"""The indexes of a process: filled from the log by a thread, one namespace at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from whiflash.core.errors import ConfigError
from whiflash.testing.waiting import wait_for
from whiflash.trajectories import tailer
from whiflash.trajectories.index import NamespaceIndex, TrajectoryIndexes, tiers
from whiflash.trajectories.index.live import MIN_BYTES
from whiflash.trajectories.log import LogBatch
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord


def record(namespace: str, num_tokens: int, seed: int = 0) -> TrajectoryRecord:
    tokens = np.random.default_rng(seed).integers(0, 1000, num_tokens)
    return TrajectoryRecord(namespace, "", tokens)


class FailingLog(MemoryLog):
    """Its first reads fail."""

    num_left = 2

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        if self.num_left:
            self.num_left -= 1
            raise ConnectionError("the log is away")
        return super().read(namespace, cursor, max_records)


class CountingLog(MemoryLog):
    """Notes which namespaces were read."""

    def __init__(self) -> None:
        super().__init__()
        self.num_reads: Counter[str] = Counter()

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        self.num_reads[namespace] += 1
        return super().read(namespace, cursor, max_records)


class SlowLog(MemoryLog):
    """Takes its time to read; notes when."""

    NUM_NAMESPACES = 20
    READ_S = 0.002

    def __init__(self) -> None:
        super().__init__()
        self.reads_s: list[float] = []

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        self.reads_s.append(time.monotonic())
        time.sleep(self.READ_S)
        return super().read(namespace, cursor, max_records)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def indexes(log: MemoryLog) -> Iterator[TrajectoryIndexes]:
    with TrajectoryIndexes(log) as made:
        yield made
        assert made.flush()
        made.check_integrity()


def test_what_was_logged_before_and_after_is_indexed(
    log: MemoryLog, indexes: TrajectoryIndexes
) -> None:
    log.append(record("a", 300))
    index = indexes.live("a")
    assert indexes.flush()
    assert index.num_tokens == 300
    log.append(record("a", 200, seed=1))
    assert indexes.flush()
    assert index.num_tokens == 500
    assert indexes.live("a") is index
    assert indexes.num_bytes == index.num_bytes


def test_isolation_in_pairs_the_same_namespace_holds_it_and_another_does_not(
    log: MemoryLog, indexes: TrajectoryIndexes
) -> None:
    """sglang PR 35102: every request searched every corpus."""
    same, other = indexes.live("same"), indexes.live("other")
    log.append(record("same", 100))
    assert indexes.flush()
    assert same.num_tokens == 100
    assert other.num_tokens == 0


def test_a_namespace_that_nobody_uses_is_not_indexed(
    log: MemoryLog, indexes: TrajectoryIndexes
) -> None:
    log.append(record("idle", 100))
    indexes.live("a")
    assert indexes.flush()
    assert indexes.num_bytes == 0


def test_a_dropped_namespace_is_read_again_when_it_is_used_again(
    log: MemoryLog, indexes: TrajectoryIndexes
) -> None:
    log.append(record("a", 100))
    dropped = indexes.live("a")
    assert indexes.flush()
    indexes.drop("a")
    assert indexes.num_bytes == 0
    again = indexes.live("a")
    assert indexes.flush()
    assert again is not dropped
    assert again.num_tokens == 100


def test_over_the_total_the_namespace_out_of_use_longest_gives_up_its_runs() -> None:
    log = MemoryLog()
    with TrajectoryIndexes(log, max_bytes=2 * MIN_BYTES) as indexes:
        old, new = indexes.live("old"), indexes.live("new")
        for seed in range(8):
            log.append(record("old", 250, seed))
        assert indexes.flush()
        before = old.num_tokens
        for seed in range(12):
            log.append(record("new", 250, seed))
        assert indexes.flush()
        assert old.num_tokens < before
        assert new.num_tokens > old.num_tokens
        indexes.check_integrity()


def test_a_log_that_is_away_is_asked_again() -> None:
    log = FailingLog()
    log.append(record("a", 50))
    with TrajectoryIndexes(log) as indexes:
        index = indexes.live("a")
        assert indexes.flush()
        assert index.num_tokens == 50
        assert indexes.num_failures == 2


def test_one_more_namespace_and_news_in_one_are_no_reason_to_read_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("WAIT_S", "MAX_PAUSE_S"):  # of passes over all: they are not timed here
        monkeypatch.setattr(tailer, name, 60.0)
    log = CountingLog()
    with TrajectoryIndexes(log) as indexes:
        for number in range(40):
            log.append(record(f"n{number}", 50))
            index = indexes.live(f"n{number}")
            wait_for(lambda index=index: index.num_tokens == 50, 10, "it is not read")
        assert log.num_reads.total() <= 2 * 40
        log.append(record("n0", 70))
        wait_for(lambda: indexes.live("n0").num_tokens == 120, 10, "news are not read")
        assert log.num_reads.total() <= 2 * 40 + 2
        assert indexes.flush()
        assert indexes.ready_shared


def test_passes_over_many_namespaces_take_a_small_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server had seen 2,500 namespaces and read all of them twice a second beside its engine."""
    monkeypatch.setattr(tailer, "WAIT_S", 0.01)
    log = SlowLog()
    with TrajectoryIndexes(log) as indexes:
        for number in range(SlowLog.NUM_NAMESPACES):
            indexes.live(f"n{number}")
        assert indexes.flush()
        log.reads_s.clear()
        wait_for(lambda: len(log.reads_s) > SlowLog.NUM_NAMESPACES, 20, "no second pass")
        before, after = log.reads_s[SlowLog.NUM_NAMESPACES - 1 :][:2]
    assert after - before > 10 * SlowLog.NUM_NAMESPACES * SlowLog.READ_S


def test_idle_namespaces_are_given_up_and_come_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("IDLE_S", 0.2), ("IDLE_TOKENS_PER_S", 1e9)):
        monkeypatch.setattr(tiers, name, value)
    monkeypatch.setattr(tailer, "WAIT_S", 0.01)
    log = MemoryLog()
    for name in ("open", "idle"):
        log.append(record(name, 50))
    with TrajectoryIndexes(log) as indexes:
        used, idle = indexes.live("open"), indexes.live("idle")
        reader = used.open_reader()
        assert indexes.flush()
        wait_for(lambda: indexes.num_namespaces == 1, 10, "an idle namespace is kept")
        assert indexes.live("open") is used
        again = indexes.live("idle")
        assert again is not idle
        assert indexes.flush()
        assert again.num_tokens == 50
        used.close_reader(reader)


def test_what_takes_longer_to_read_again_is_kept_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "IDLE_S", 0.0)
    empty, filled = (NamespaceIndex(name, MIN_BYTES, 1e9) for name in ("empty", "filled"))
    filled.add(record("filled", 50_000))
    assert empty.is_idle
    assert not filled.is_idle


def test_misuse_is_refused() -> None:
    log = MemoryLog()
    with pytest.raises(ConfigError, match="bytes"):
        TrajectoryIndexes(log, max_bytes=10)
    indexes = TrajectoryIndexes(log)
    assert indexes.flush()  # nothing is followed yet
    with pytest.raises(ValueError, match="namespace is required"):
        indexes.live("")
    indexes.close()
    indexes.close()
    with pytest.raises(ValueError, match="closed"):
        indexes.live("a")
