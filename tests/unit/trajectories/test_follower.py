"""When a sink is filled, kept closed, and built anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.follower import CORRUPT_PAUSE_S, Follower
from whiflash.trajectories.log import START, LogBatch
from whiflash.trajectories.record import TrajectoryRecord


class ListSink:
    namespace = "a"

    def __init__(self) -> None:
        self.records: list[TrajectoryRecord] = []
        self.is_open = True
        self.num_clears = 0
        self.num_completed = 0

    def add(self, record: TrajectoryRecord) -> None:
        self.records.append(record)

    def delete(self, deletion: Deletion) -> None:
        self.records = [r for r in self.records if not deletion.covers(r)]

    def clear(self) -> None:
        self.records.clear()
        self.num_clears += 1

    def complete(self) -> None:
        self.num_completed += 1

    def suspend(self) -> None:
        self.is_open = False

    def resume(self) -> None:
        self.is_open = True

    @property
    def runs(self) -> list[str]:
        return [record.run_id for record in self.records]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def sink() -> ListSink:
    return ListSink()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def follower(sink: ListSink, clock: Clock) -> Follower:
    return Follower(sink, 60.0, clock)


def record(run_id: str, time_ms: int = 5, **fields: Any) -> TrajectoryRecord:
    return TrajectoryRecord("a", run_id, np.arange(3), time_ms=time_ms, **fields)


def deletion(run_id: str, epoch: int, time_ms: int = 10) -> Deletion:
    return Deletion("a", DeletionKind.RUN, run_id, epoch, time_ms)


def feed(follower: Follower, *entries: Any, cursor: str = "1", **fields: Any) -> bool:
    """As the tailer does; whether the end was reached."""
    batch = LogBatch(entries, cursor, **fields)
    accepted = follower.accept(batch)
    if accepted is None:
        return False
    for entry in accepted:
        follower.apply(entry)
    return follower.finish(batch)


def test_closed_until_the_end_was_reached(follower: Follower, sink: ListSink) -> None:
    assert not sink.is_open
    assert not feed(follower, record("r1"), is_end=False)
    assert not sink.is_open
    assert not follower.is_ready
    assert feed(follower, record("r2"), cursor="2")
    assert sink.is_open
    assert follower.is_ready
    assert follower.cursor == "2"
    assert sink.runs == ["r1", "r2"]


def test_a_deletion_ahead_keeps_the_sink_closed_until_it_is_met(
    follower: Follower, sink: ListSink
) -> None:
    feed(follower, record("r1"), record("r2"))
    assert sink.is_open
    feed(follower, record("r3"), del_epoch=7, is_end=False)
    assert not sink.is_open, "a deletion is known of, but not which one"
    feed(follower, deletion("r1", 7), del_epoch=7)
    assert sink.is_open
    assert sink.runs == ["r2", "r3"]


def test_a_missed_tombstone_builds_the_sink_anew(follower: Follower, sink: ListSink) -> None:
    feed(follower, record("r1"), record("r2"))
    assert not feed(follower, record("r3"), del_epoch=7)
    assert not sink.is_open
    assert sink.runs == []
    assert follower.cursor == START
    assert feed(follower, record("r2"), record("r3"), del_epoch=7)
    assert sink.is_open
    assert sink.runs == ["r2", "r3"]
    assert feed(follower, del_epoch=7), "the same epoch must not start it again"
    assert follower.num_reloads == 1


def test_a_gap_builds_the_sink_anew_but_not_over_and_over(
    follower: Follower, sink: ListSink, clock: Clock
) -> None:
    feed(follower, record("r1"))
    assert not feed(follower, record("r9"), cursor="9", has_gap=True)
    assert (sink.runs, follower.cursor, sink.is_open) == ([], START, False)
    feed(follower, record("r8"), is_end=False)
    feed(follower, record("r9"), cursor="9", has_gap=True)  # trimmed faster than read
    assert sink.runs == ["r8", "r9"]
    assert (follower.num_reloads, follower.num_gaps) == (1, 2)
    clock.now += 2
    feed(follower, record("r10"), cursor="10", has_gap=True)
    assert follower.num_reloads == 2


def test_a_log_restarted_empty_empties_the_sink(follower: Follower, sink: ListSink) -> None:
    feed(follower, record("r1"), cursor="5-0")
    for _ in range(3):
        if follower.cursor == START:
            break
        feed(follower, cursor=START, has_gap=True, is_end=False)
    assert feed(follower, cursor=START)
    assert (sink.runs, sink.is_open) == ([], True)


def test_damage_builds_the_sink_anew_once(follower: Follower, sink: ListSink, clock: Clock) -> None:
    feed(follower, record("r1"))
    assert not feed(follower, record("r2"), num_corrupt=1)
    assert feed(follower, record("r1"), record("r2"), num_corrupt=1)
    assert sink.runs == ["r1", "r2"]
    clock.now += CORRUPT_PAUSE_S + 1
    assert not feed(follower, num_corrupt=1)
    assert follower.num_reloads == 2


def test_copies_are_left_out(follower: Follower, sink: ListSink) -> None:
    one = record("r1")
    feed(follower, one, one, record("r1"), is_confirmed=False, is_end=False)
    feed(follower, one)
    assert len(sink.records) == 2
    assert follower.num_copies == 2


def test_a_record_that_comes_behind_its_own_deletion_is_left_out(
    follower: Follower, sink: ListSink
) -> None:
    feed(follower, deletion("r1", 7, time_ms=10), del_epoch=7)
    feed(follower, record("r1", 9), record("r1", 11), record("r2", 9), del_epoch=7)
    assert [(r.run_id, r.time_ms) for r in sink.records] == [("r1", 11), ("r2", 9)]


def test_local_entries_are_used_while_the_shared_log_was_never_reached(
    follower: Follower, sink: ListSink, clock: Clock
) -> None:
    assert not feed(follower, record("own"), is_confirmed=False, is_end=False)
    assert feed(follower, is_confirmed=False)
    assert sink.is_open
    assert not follower.is_ready
    clock.now += 3600
    feed(follower, is_confirmed=False)
    assert sink.is_open


def test_shared_then_local_then_off_then_shared_again(
    follower: Follower, sink: ListSink, clock: Clock
) -> None:
    feed(follower, record("r1"))
    clock.now += 59
    feed(follower, is_confirmed=False)
    assert sink.is_open, "what is known goes on to be used"
    clock.now += 2
    feed(follower, is_confirmed=False)
    assert not sink.is_open, "a deletion may have been missed"
    assert not follower.is_ready
    feed(follower, deletion("r1", 7), del_epoch=7)
    assert sink.is_open
    assert sink.runs == []


def test_a_log_lost_while_it_is_loaded_keeps_the_sink_closed(
    follower: Follower, sink: ListSink
) -> None:
    feed(follower, record("r1"), is_end=False)
    follower.note_unconfirmed()
    assert not sink.is_open, "its tombstone may be still to come"
