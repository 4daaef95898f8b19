"""What all logs promise alike: memory, file, Redis Streams and the ladder over two of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fakeredis
import numpy as np
import pytest

from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import StoreClosedError
from whiflash.trajectories.file_log import FileLog
from whiflash.trajectories.ladder_log import LadderLog
from whiflash.trajectories.log import START, LogLevel, TrajectoryLog
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.redis_log import RedisLog


def fake_redis_log(_: Path) -> RedisLog:
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    return RedisLog(client, assume_noeviction=True)


KINDS: dict[str, Callable[[Path], TrajectoryLog]] = {
    "memory": lambda _: MemoryLog(),
    "file": lambda folder: FileLog(folder / "store"),
    "redis": fake_redis_log,
    "ladder": lambda folder: LadderLog(FileLog(folder / "store"), MemoryLog()),
}


@pytest.fixture(params=sorted(KINDS))
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrajectoryLog]:
    made = KINDS[request.param](tmp_path)
    yield made
    made.flush()
    made.check_integrity()
    made.close()


def record(
    namespace: str, first: int, run_id: str = "", subject: str = "", num_tokens: int = 4
) -> TrajectoryRecord:
    tokens = np.arange(first, first + num_tokens)
    return TrajectoryRecord(namespace, run_id, tokens, subject=subject)


def put(log: TrajectoryLog, *records: TrajectoryRecord) -> None:
    for entry in records:
        log.append(entry)
    assert log.flush()


def all_entries(
    log: TrajectoryLog, namespace: str, cursor: str = START
) -> tuple[list[TrajectoryRecord | Deletion], str]:
    """To the end, copies of a record left out, and the cursor there."""
    found, seen = [], set()
    while True:
        batch = log.read(namespace, cursor, max_records=3)
        for entry in batch.entries:
            key = entry.record_id if isinstance(entry, TrajectoryRecord) else entry.value
            if key not in seen:
                found.append(entry)
            seen.add(key)
        cursor = batch.cursor
        if batch.is_end:
            return found, cursor


def firsts(log: TrajectoryLog, namespace: str, cursor: str = START) -> list[int]:
    entries, _ = all_entries(log, namespace, cursor)
    return [int(e.tokens[0]) for e in entries if isinstance(e, TrajectoryRecord)]


def test_it_is_a_trajectory_log(log: TrajectoryLog) -> None:
    assert isinstance(log, TrajectoryLog)
    assert log.status().level is LogLevel.SHARED


def test_a_reader_sees_everything_in_order_and_goes_on_behind_it(log: TrajectoryLog) -> None:
    put(log, *(record("a", first) for first in range(10)))
    assert firsts(log, "a") == list(range(10))
    _, end = all_entries(log, "a")
    assert firsts(log, "a", end) == []
    put(log, record("a", 10))
    assert firsts(log, "a", end) == [10]
    assert log.num_dropped == 0


def test_what_comes_back_is_what_went_in(log: TrajectoryLog) -> None:
    sent = TrajectoryRecord(
        "a", "run", np.array([5, 49151, 7]), segment=3, model_label="m", finish_reason="stop",
        subject="s", template_id="t", tokenizer="f", part=2,
    )  # fmt: skip
    put(log, sent)
    (found,), _ = all_entries(log, "a")
    assert isinstance(found, TrajectoryRecord)
    for name in TrajectoryRecord.__slots__:
        if name != "tokens":
            assert getattr(found, name) == getattr(sent, name), name
    assert found.tokens.tolist() == [5, 49151, 7]


def test_isolation_in_pairs(log: TrajectoryLog) -> None:
    put(log, record("a", 1), record("b", 2))
    assert firsts(log, "a") == [1]
    assert firsts(log, "b") == [2]
    assert firsts(log, "c") == []
    with pytest.raises(ValueError, match="namespace is required"):
        log.read("", START)


def test_a_foreign_cursor_is_refused(log: TrajectoryLog) -> None:
    for cursor in ("x", "-1", "1:x", "a-b|c"):
        with pytest.raises(ValueError, match="cursor"):
            log.read("a", cursor)


@pytest.mark.parametrize(
    ("kind", "value", "left"),
    [(DeletionKind.RUN, "r1", [2, 3]), (DeletionKind.SUBJECT, "anna", [1, 2]),
     (DeletionKind.NAMESPACE, "", [])],
)  # fmt: skip
def test_deleted_records_are_gone_and_only_they(
    log: TrajectoryLog, kind: DeletionKind, value: str, left: list[int]
) -> None:
    put(log, record("a", 1, "r1"), record("a", 2, "r2"), record("a", 3, "r3", "anna"))
    put(log, record("b", 4, "r1", "anna"))
    tombstone = log.delete(Deletion("a", kind, value))
    assert tombstone.epoch > 0
    assert firsts(log, "a") == left
    assert firsts(log, "b") == [4]
    time.sleep(0.002)
    put(log, record("a", 5, "r1", "anna"))
    assert firsts(log, "a") == [*left, 5]


def test_a_reader_meets_the_tombstone_and_later_epochs_are_larger(log: TrajectoryLog) -> None:
    put(log, record("a", 1, "r1"))
    _, cursor = all_entries(log, "a")
    first = log.delete(Deletion("a", DeletionKind.RUN, "r1"))
    second = log.delete(Deletion("a", DeletionKind.RUN, "r2"))
    assert second.epoch > first.epoch
    entries, _ = all_entries(log, "a", cursor)
    values = [e.value for e in entries if isinstance(e, Deletion)]
    assert values[:2] == ["r1", "r2"]


def test_waiting_ends_with_news_of_the_asked_namespaces_only(log: TrajectoryLog) -> None:
    assert not log.wait({"a": START}, 0.02)
    put(log, record("a", 1))
    assert log.wait({"a": START}, 5.0)
    _, end = all_entries(log, "a")
    put(log, record("b", 1))
    assert not log.wait({"a": end}, 0.1)
    threading.Timer(0.05, log.append, [record("a", 2)]).start()
    assert log.wait({"a": end}, 5.0)


def test_wake_and_close_end_a_wait(log: TrajectoryLog) -> None:
    log.wake()
    started = time.perf_counter()
    assert not log.wait({"a": START}, 5.0)
    threading.Timer(0.05, log.wake).start()
    assert not log.wait({}, 5.0)
    assert time.perf_counter() - started < 4
    log.close()
    log.close()
    with pytest.raises(StoreClosedError, match="closed"):
        log.append(record("a", 1))
    assert log.status().level is LogLevel.OFF


def test_writers_and_readers_on_many_threads(log: TrajectoryLog) -> None:
    def write(writer: int) -> None:
        for number in range(25):
            log.append(record("a", 100 * writer + number))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    for _ in range(20):
        seen = firsts(log, "a")
        assert len(seen) == len(set(seen))
    for thread in threads:
        thread.join()
    assert log.flush()
    found = firsts(log, "a")
    assert sorted(found) == sorted(100 * w + n for w in range(4) for n in range(25))
    for writer in range(4):
        own = [first for first in found if first // 100 == writer]
        assert own == sorted(own), "a writer's records must stay in order"


def test_namespaces_are_those_that_hold_entries(log: TrajectoryLog) -> None:
    assert log.namespaces() == ()
    put(log, record("b", 0, "r"), record("a.x:1", 10))
    assert log.namespaces() == ("a.x:1", "b")
    log.delete(Deletion("b", DeletionKind.RUN, "r"))
    put(log, record("c", 20))
    assert {"a.x:1", "c"} <= set(log.namespaces()) <= {"a.x:1", "b", "c"}
