"""The writer between engine and store: order, bounds, retries, and ends in time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from whiflash.core.errors import ConfigError
from whiflash.trajectories.breaker import Breaker
from whiflash.trajectories.errors import StoreClosedError
from whiflash.trajectories.writer import BackgroundWriter

Opener = Callable[..., BackgroundWriter[int]]


class Store:
    """Takes numbers; fails, or blocks, when told to."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.is_failing = False
        self.gate = threading.Event()
        self.gate.set()

    def write(self, batch: deque[int]) -> None:
        self.gate.wait(10)
        while batch:
            if self.is_failing and len(self.taken) % 3 == 2:
                raise ConnectionError("away")
            self.taken.append(batch.popleft())
            if self.is_failing:
                raise ConnectionError("away in the middle")


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def open_writer(store: Store) -> Iterator[Opener]:
    writers: list[BackgroundWriter[int]] = []

    def make(**options: Any) -> BackgroundWriter[int]:
        breaker = Breaker(max_failures=3, first_pause_s=0.01)
        made = BackgroundWriter(
            "test-writer", store.write, lambda _: 10, breaker=breaker, **options
        )
        writers.append(made)
        return made

    yield make
    store.gate.set()
    for writer in writers:
        writer.check_integrity()
        writer.close(5)


def test_everything_is_written_in_order(open_writer: Opener, store: Store) -> None:
    writer = open_writer()
    for number in range(1000):
        writer.put(number)
    assert writer.flush(10)
    assert store.taken == list(range(1000))
    assert writer.num_written == 1000
    assert writer.num_dropped == 0


def test_over_its_bound_the_oldest_go_and_are_counted(open_writer: Opener, store: Store) -> None:
    writer = open_writer(max_bytes=100)
    store.gate.clear()
    writer.put(-1)
    time.sleep(0.1)  # it is being written
    for number in range(50):
        writer.put(number)
    assert writer.num_pending_bytes <= 100
    store.gate.set()
    assert writer.flush(10)
    assert store.taken[0] == -1
    assert store.taken[-1] == 49
    assert store.taken[1:] == sorted(store.taken[1:])
    assert writer.num_dropped == 51 - len(store.taken)
    assert writer.num_dropped >= 40


def test_what_failed_is_tried_again_without_loss_or_copy(open_writer: Opener, store: Store) -> None:
    writer = open_writer()
    store.is_failing = True
    for number in range(20):
        writer.put(number)
    assert not writer.flush(0.2)
    assert writer.breaker.num_failures > 0
    store.is_failing = False
    assert writer.flush(10)
    assert store.taken == list(range(20))
    assert writer.breaker.is_closed


def test_put_does_not_wait_for_a_blocked_store(open_writer: Opener, store: Store) -> None:
    writer = open_writer(max_bytes=1000)
    store.gate.clear()
    started = time.perf_counter()
    for number in range(5000):
        writer.put(number)
    assert time.perf_counter() - started < 2
    assert not writer.flush(0.05)


def test_close_is_bounded_in_time_and_counts_what_is_lost(
    open_writer: Opener, store: Store
) -> None:
    writer = open_writer()
    store.is_failing = True
    for number in range(10):
        writer.put(number)
    time.sleep(0.1)
    started = time.perf_counter()
    writer.close(0.3)
    writer.close(0.3)
    assert time.perf_counter() - started < 3
    assert writer.num_dropped == 10 - len(store.taken)
    with pytest.raises(StoreClosedError):
        writer.put(1)


def test_close_writes_out_what_is_queued(open_writer: Opener, store: Store) -> None:
    writer = open_writer()
    for number in range(500):
        writer.put(number)
    writer.close(10)
    assert store.taken == list(range(500))


def test_discard_takes_out_what_waits(open_writer: Opener, store: Store) -> None:
    writer = open_writer()
    store.gate.clear()
    writer.put(-1)
    time.sleep(0.1)
    for number in range(10):
        writer.put(number)
    threading.Timer(0.1, store.gate.set).start()
    gone = writer.discard(lambda number: number % 2 == 0)
    assert writer.flush(10)
    assert gone + len(store.taken) == 11
    assert store.taken[0] == -1
    assert gone in (0, 5)  # the queue was searched before or after it was taken


def test_a_queue_without_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs room"):
        BackgroundWriter[int]("x", lambda _: None, lambda _: 1, max_bytes=0)
