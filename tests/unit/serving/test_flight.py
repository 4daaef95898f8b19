from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from whiflash.core.errors import DrainingError, RequestCancelledError
from whiflash.serving.flight import Flight
from whiflash.serving.stream import Started, StreamEvent


class Source:
    """`count` events with a pause before each; knows whether it was closed."""

    def __init__(self, count: int, pause_s: float = 0.0) -> None:
        self.count = count
        self.pause_s = pause_s
        self.is_closed = False

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(self.pause_s)
                yield Started((number,), number)
        finally:
            self.is_closed = True


async def hear(flight: Flight) -> list[StreamEvent]:
    return [event async for event in flight.listen(None, 5.0)]


def test_all_listeners_hear_everything_even_after_the_end() -> None:
    async def run() -> None:
        flight = Flight(Source(5, 0.002).events(), keeps_events=True)
        early = asyncio.create_task(hear(flight))
        await asyncio.sleep(0.005)
        late = asyncio.create_task(hear(flight))
        heard = [await early, await late, await hear(flight)]
        assert heard[0] == heard[1] == heard[2]
        assert len(heard[0]) == 5
        assert flight.is_joinable

    asyncio.run(run())


def test_the_last_listener_to_leave_ends_it() -> None:
    async def run() -> None:
        source = Source(1000, 0.001)
        flight = Flight(source.events())
        tasks = [asyncio.create_task(hear(flight)) for _ in range(2)]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        await asyncio.sleep(0.01)
        assert not source.is_closed
        tasks[1].cancel()
        await flight.wait()
        assert source.is_closed
        assert flight.has_ended
        assert not flight.is_joinable

    asyncio.run(run())


def test_a_call_cancelled_before_its_first_step_is_told_to_its_listeners() -> None:
    async def run() -> None:
        flight = Flight(Source(3).events())
        listener = asyncio.create_task(hear(flight))
        flight.cancel(DrainingError("going"))
        with pytest.raises(DrainingError, match="going"):
            await listener

    asyncio.run(run())


def test_the_first_reason_is_the_one_that_is_heard() -> None:
    async def run() -> None:
        flight = Flight(Source(1000, 0.001).events())
        listener = asyncio.create_task(hear(flight))
        await asyncio.sleep(0.005)
        flight.cancel()
        flight.cancel(DrainingError("too late"))
        with pytest.raises(RequestCancelledError):
            await listener
        flight.cancel()
        assert isinstance(flight.failure, RequestCancelledError)

    asyncio.run(run())


def test_a_fault_is_raised_by_every_listener() -> None:
    async def broken() -> AsyncGenerator[StreamEvent, None]:
        yield Started((), 0)
        raise KeyError("fault")

    async def run() -> None:
        flight = Flight(broken(), keeps_events=True)
        results = await asyncio.gather(hear(flight), hear(flight), return_exceptions=True)
        assert [type(result) for result in results] == [KeyError, KeyError]
        assert not flight.is_joinable

    asyncio.run(run())
