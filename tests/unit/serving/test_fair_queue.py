from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.errors import QueueFullError, RateLimitedError
from whiflash.serving.fair_queue import FairQueue, Place


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def enter(queue: FairQueue, tenant: str, **given: Any) -> Place:
    values: dict[str, Any] = {"weight": 1.0, "slots": 1, "tokens": 10, "cost": 10.0, **given}
    return queue.enter(tenant, **values)


def test_hands_over_what_fits_and_keeps_the_rest() -> None:
    async def run() -> None:
        queue = FairQueue(slots=2)
        places = [enter(queue, "a") for _ in range(3)]
        assert [place.ready.done() for place in places] == [True, True, False]
        queue.leave(places[0])
        assert places[2].ready.done()
        for place in places:
            queue.leave(place)
        assert queue.num_running == queue.num_waiting == 0
        queue.check_integrity()

    in_loop(run)


def test_a_flood_of_one_tenant_delays_another_by_one_call_at_most() -> None:
    async def run() -> None:
        queue = FairQueue(slots=1)
        flood = [enter(queue, "loud") for _ in range(50)]
        quiet = enter(queue, "quiet")
        queue.leave(flood[0])
        assert quiet.ready.done()
        assert not flood[1].ready.done()

    in_loop(run)


@given(weights=st.tuples(st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([1.0, 3.0])),
       costs=st.lists(st.sampled_from([5.0, 20.0, 80.0]), min_size=40, max_size=40))  # fmt: skip
def test_busy_tenants_are_served_by_weight(
    weights: tuple[float, float], costs: list[float]
) -> None:
    async def run() -> None:
        queue = FairQueue(slots=1, max_waiting=1000, max_tenant_waiting=1000)
        lines = {
            tenant: [enter(queue, tenant, weight=weight, cost=cost) for cost in costs]
            for tenant, weight in zip("ab", weights, strict=True)
        }
        served = {"a": 0.0, "b": 0.0}
        while all(served[t] < sum(costs) for t in "ab"):
            tenant = next(t for t in "ab" if lines[t] and lines[t][0].ready.done())
            place = lines[tenant].pop(0)
            served[tenant] += place.cost
            queue.leave(place)
            queue.check_integrity()
            if all(lines.values()):  # while both are busy no one runs ahead by more than a call
                ahead = served["a"] / weights[0] - served["b"] / weights[1]
                assert abs(ahead) <= 80.0 / min(weights) + 80.0 / min(weights)

    in_loop(run)


def test_what_a_call_really_cost_is_charged_at_its_end() -> None:
    async def run() -> None:
        queue = FairQueue(slots=1)
        dear = enter(queue, "dear", cost=1.0)
        waiting = {name: [enter(queue, name, cost=1.0) for _ in range(3)] for name in ("dear", "b")}
        queue.leave(dear, used=100.0)
        order = []
        for _ in range(3):
            name = next(n for n, line in waiting.items() if line and line[0].ready.done())
            order.append(name)
            queue.leave(waiting[name].pop(0), used=1.0)
        assert order == ["b", "b", "b"]

    in_loop(run)


def test_time_unused_is_no_credit() -> None:
    async def run() -> None:
        queue = FairQueue(slots=1)
        for _ in range(20):
            queue.leave(enter(queue, "busy"))
        busy = [enter(queue, "busy") for _ in range(4)]
        late = [enter(queue, "late") for _ in range(4)]
        order = []
        lines = {"busy": busy, "late": late}
        for _ in range(6):
            name = next(n for n, line in lines.items() if line and line[0].ready.done())
            order.append(name)
            queue.leave(lines[name].pop(0))
        assert order.count("busy") == order.count("late") == 3

    in_loop(run)


def test_a_large_call_is_not_overtaken_for_ever_and_one_that_fits_nowhere_runs_alone() -> None:
    async def run() -> None:
        queue = FairQueue(slots=4, tokens=100)
        small = [enter(queue, "a") for _ in range(3)]
        large = enter(queue, "b", slots=9, tokens=1000)
        behind = enter(queue, "b")
        assert not large.ready.done()
        for place in small:
            queue.leave(place)
        assert large.ready.done()
        assert not behind.ready.done()
        queue.leave(large)
        assert behind.ready.done()

    in_loop(run)


def test_tokens_bound_what_runs_together() -> None:
    async def run() -> None:
        queue = FairQueue(slots=8, tokens=100)
        places = [enter(queue, "a", tokens=40) for _ in range(3)]
        assert [place.ready.done() for place in places] == [True, True, False]

    in_loop(run)


def test_lines_are_bounded_for_a_tenant_and_for_all() -> None:
    async def run() -> None:
        queue = FairQueue(slots=1, max_waiting=3, max_tenant_waiting=2)
        for _ in range(3):
            enter(queue, "a")
        with pytest.raises(RateLimitedError):
            enter(queue, "a")
        enter(queue, "b")
        with pytest.raises(QueueFullError):
            enter(queue, "c")
        queue.check_integrity()

    in_loop(run)


def test_random_arrivals_and_departures_leave_nothing_behind() -> None:
    async def run() -> None:
        rng = random.Random(3)
        queue = FairQueue(slots=3, tokens=60, max_waiting=1000, max_tenant_waiting=1000)
        held: list[Place] = []
        for _ in range(600):
            if rng.random() < 0.5 or not held:
                slots, tokens = rng.randint(1, 4), rng.randint(1, 80)
                held.append(enter(queue, rng.choice("abc"), slots=slots, tokens=tokens))
            else:
                place = held.pop(rng.randrange(len(held)))
                if rng.random() < 0.3:
                    place.ready.cancel()
                queue.leave(place, used=rng.choice([None, 3.0]))
                queue.leave(place)
            queue.check_integrity()
        for place in held:
            queue.leave(place)
        queue.check_integrity()
        assert queue.num_running == queue.num_waiting == 0

    in_loop(run)
