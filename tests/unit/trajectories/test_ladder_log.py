"""Shared, local, off: what happens to records, readers and deletions on each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import StoreUnavailableError
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.ladder_log import LadderLog
from whiflash.trajectories.log import START, LogBatch, LogLevel, LogStatus
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord


class LosableLog(MemoryLog):
    """Stands for a server that can be away: what is appended meanwhile waits."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.waiting: list[TrajectoryRecord] = []

    def append(self, record: TrajectoryRecord) -> None:
        self.waiting.append(record)
        self.flush()

    def flush(self, timeout_s: float = 0) -> bool:
        while self.waiting and not self.is_away:
            super().append(self.waiting.pop(0))
        return not self.waiting

    def _require(self) -> None:
        if self.is_away:
            raise StoreUnavailableError("away")

    def delete(self, deletion: Deletion) -> Deletion:
        self._require()
        return super().delete(deletion)

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        self._require()
        return super().read(namespace, cursor, max_records)

    def wait(self, cursors: Mapping[str, str], timeout_s: float) -> set[str]:
        self._require()
        return super().wait(cursors, timeout_s)

    def status(self) -> LogStatus:
        level = LogLevel.LOCAL if self.is_away else LogLevel.SHARED
        return LogStatus("losable", "here", level)


@pytest.fixture
def durable() -> LosableLog:
    return LosableLog()


@pytest.fixture
def ladder(durable: LosableLog) -> LadderLog:
    return LadderLog(durable, MemoryLog())


@pytest.fixture
def open_indexes(ladder: LadderLog) -> Iterator[Callable[..., TrajectoryIndexes]]:
    made: list[TrajectoryIndexes] = []

    def make(log: LadderLog = ladder, max_unconfirmed_s: float = 60.0) -> TrajectoryIndexes:
        made.append(TrajectoryIndexes(log, max_unconfirmed_s=max_unconfirmed_s))
        return made[-1]

    yield make
    for indexes in made:
        indexes.close()
        indexes.check_integrity()


def record(first: int, run_id: str = "", num_tokens: int = 50) -> TrajectoryRecord:
    return TrajectoryRecord("a", run_id, np.arange(first, first + num_tokens))


def test_the_level_follows_the_logs(ladder: LadderLog, durable: LosableLog) -> None:
    assert ladder.status().level is LogLevel.SHARED
    durable.is_away = True
    assert ladder.status().level is LogLevel.LOCAL
    ladder.close()
    assert ladder.status().level is LogLevel.OFF


def test_own_records_are_found_once_and_also_while_the_shared_log_is_away(
    ladder: LadderLog, durable: LosableLog, open_indexes: Callable[..., TrajectoryIndexes]
) -> None:
    indexes = open_indexes()
    index = indexes.live("a")
    ladder.append(record(0))
    assert indexes.flush()
    assert index.num_tokens == 50
    durable.is_away = True
    ladder.append(record(100))
    assert not indexes.flush(0.3), "what is not in the shared log is not flushed"
    assert wait_for(lambda: index.num_tokens == 100)
    durable.is_away = False
    assert indexes.flush()
    assert index.num_tokens == 100, "its copy in the shared log is no second record"
    assert indexes.ready_shared
    assert indexes.num_failures == 0


def test_a_shared_log_that_is_away_at_the_start_comes_in_later(
    durable: LosableLog, ladder: LadderLog, open_indexes: Callable[..., TrajectoryIndexes]
) -> None:
    MemoryLog.append(durable, record(500))
    durable.is_away = True
    indexes = open_indexes()
    index = indexes.live("a")
    ladder.append(record(0))
    assert wait_for(lambda: index.num_tokens == 50)
    assert not indexes.ready_shared
    durable.is_away = False
    assert indexes.flush()
    assert index.num_tokens == 100
    assert indexes.ready_shared


def test_a_deletion_the_shared_log_did_not_get_is_done_here_and_is_an_error(
    ladder: LadderLog, durable: LosableLog, open_indexes: Callable[..., TrajectoryIndexes]
) -> None:
    indexes = open_indexes()
    index = indexes.live("a")
    ladder.append(record(0, "r1"))
    ladder.append(record(100, "r2"))
    assert indexes.flush()
    durable.is_away = True
    asked = Deletion("a", DeletionKind.RUN, "r1")
    with pytest.raises(StoreUnavailableError):
        ladder.delete(asked)
    assert wait_for(lambda: index.num_tokens == 50)
    durable.is_away = False
    ladder.delete(asked)
    assert indexes.flush()
    assert index.num_tokens == 50


def test_a_deletion_on_another_replica_reaches_this_one(
    durable: LosableLog, ladder: LadderLog, open_indexes: Callable[..., TrajectoryIndexes]
) -> None:
    other = LadderLog(durable, MemoryLog())
    indexes = open_indexes()
    index = indexes.live("a")
    ladder.append(record(0, "r1"))
    other.append(record(100, "r2"))
    assert indexes.flush()
    assert index.num_tokens == 100
    other.delete(Deletion("a", DeletionKind.RUN, "r1"))
    assert wait_for(lambda: index.num_tokens == 50)


def test_a_shared_log_away_too_long_turns_drafts_off_until_it_is_back(
    ladder: LadderLog, durable: LosableLog, open_indexes: Callable[..., TrajectoryIndexes]
) -> None:
    indexes = open_indexes(max_unconfirmed_s=0.3)
    index = indexes.live("a")
    ladder.append(record(0))
    assert indexes.flush()
    assert not index._is_suspended
    durable.is_away = True
    assert wait_for(lambda: index._is_suspended)
    durable.is_away = False
    assert wait_for(lambda: not index._is_suspended)
    assert index.num_tokens == 50


def test_a_log_that_breaks_reaches_no_caller(ladder: LadderLog) -> None:
    class Broken(MemoryLog):
        def append(self, record: TrajectoryRecord) -> None:
            raise MemoryError

    log = LadderLog(Broken(), Broken())
    log.append(record(1))
    assert log.num_dropped == 2
    assert log.read("a", START).entries == ()


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not condition():
        time.sleep(0.01)
    return condition()
