"""Several running calls read as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from whiflash.serving.stream import StreamEvent

_Inbox = asyncio.Queue[tuple[int, StreamEvent | Exception | None]]


async def merged(
    streams: Sequence[AsyncGenerator[StreamEvent, None]],
) -> AsyncGenerator[tuple[int, StreamEvent], None]:
    """Events of all streams with the number of the stream, as they come. The first error is
    raised and ends them all; so does closing."""
    inbox: _Inbox = asyncio.Queue()
    tasks = [
        asyncio.create_task(_pump(number, stream, inbox)) for number, stream in enumerate(streams)
    ]
    num_open = len(tasks)
    try:
        while num_open:
            number, item = await inbox.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield number, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(number: int, stream: AsyncGenerator[StreamEvent, None], inbox: _Inbox) -> None:
    try:
        async with aclosing(stream) as events:
            async for event in events:
                inbox.put_nowait((number, event))
    except Exception as error:  # noqa: BLE001 - the reader raises it
        inbox.put_nowait((number, error))
    else:
        inbox.put_nowait((number, None))
