"""Closed, open, half-open: when a failing store is asked again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from whiflash.trajectories.breaker import JITTER, MAX_PAUSE_S, Breaker, BreakerState


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock, max_failures: int = 3) -> Breaker:
    breaker = Breaker(max_failures, first_pause_s=1.0, clock=clock)
    for _ in range(max_failures):
        assert breaker.allow()
        breaker.failure(ConnectionError("gone"))
    return breaker


def test_it_opens_after_failures_in_a_row_only(integrity: Any) -> None:
    clock = Clock()
    breaker = integrity(Breaker(3, 1.0, clock))
    for _ in range(5):
        breaker.failure("one")
        breaker.failure("two")
        breaker.success()
        assert breaker.state is BreakerState.CLOSED
    assert breaker.allow()
    assert breaker.retry_in_s == 0
    breaker = opened(clock)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.allow()
    assert breaker.last_error == "ConnectionError: gone"
    assert breaker.num_opened == 1


def test_one_probe_at_a_time_and_its_success_closes() -> None:
    clock = Clock()
    breaker = opened(clock)
    assert 0.5 <= breaker.retry_in_s <= 1.5
    clock.now += breaker.retry_in_s
    assert breaker.allow()
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.allow()
    breaker.success()
    assert breaker.is_closed
    assert breaker.allow()


def test_pauses_double_up_to_a_bound_with_jitter() -> None:
    clock = Clock()
    breaker = opened(clock)
    pauses = []
    for _ in range(12):
        pauses.append(breaker.retry_in_s)
        clock.now += breaker.retry_in_s
        assert breaker.allow()
        breaker.failure("still gone")
    assert pauses[4] > pauses[0]
    for number, pause in enumerate(pauses):
        expected = min(2.0**number, MAX_PAUSE_S)
        assert (1 - JITTER) * expected <= pause <= (1 + JITTER) * expected
    drawn = {round(opened(clock).retry_in_s, 6) for _ in range(20)}
    assert len(drawn) > 10, "replicas must not come back at once"


def test_a_probe_that_never_reports_does_not_keep_it_shut() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 2
    assert breaker.allow()
    clock.now += 2
    assert breaker.allow()


@given(st.lists(st.sampled_from(["ask", "good", "bad", "wait"]), max_size=60))
def test_any_order_of_events_keeps_its_invariants(events: list[str]) -> None:
    clock = Clock()
    breaker = Breaker(3, 1.0, clock)
    in_a_row = 0
    for event in events:
        if event == "ask":
            breaker.allow()
        elif event == "wait":
            clock.now += 0.7
        elif event == "good":
            breaker.success()
            in_a_row = 0
            assert breaker.is_closed
        else:
            breaker.failure("bad")
            in_a_row += 1
            assert breaker.is_closed == (in_a_row < 3) or breaker.state is BreakerState.OPEN
        breaker.check_integrity()
