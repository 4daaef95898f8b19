"""A TCP relay that cuts its connections, as networks and dying servers do."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK_BYTES = 4096
WAIT_S = 30.0
POLL_S = 0.01


class CuttingRelay:
    """Forwards to 127.0.0.1:`port`. `bytes_until_cut` is asked once per connection: after that
    many bytes from the server the connection is reset, mid-message or not; None never cuts."""

    def __init__(self, port: int, bytes_until_cut: Callable[[], int | None]) -> None:
        self.port = 0
        self.num_cuts = 0
        self.num_connections = 0
        self._server_port = port
        self._bytes_until_cut = bytes_until_cut
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="test-relay", daemon=True
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(WAIT_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both directions end together. Cancelled only by `_stop`."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_connections += 1
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._relay(reader, writer)
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        pumps = {
            asyncio.create_task(self._pump(reader, server_writer, None)),
            asyncio.create_task(self._pump(server_reader, writer, self._bytes_until_cut())),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            server_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if left is not None and len(data) >= left:
                    writer.write(data[:left])
                    await writer.drain()
                    self.num_cuts += 1
                    return
                left = None if left is None else left - len(data)
                writer.write(data)
                await writer.drain()


DAMAGES = ("flip", "repeat", "swap", "lose")
"""What bytes may suffer that TCP's own sum would not show: a bit, or a whole chunk of them."""
FAULTS = ("slow", "held", "black hole", "cut", *DAMAGES)
"""All that `FaultyRelay.spoil` can do."""


class FaultyRelay(CuttingRelay):
    """A relay whose connections all fail alike, from the next chunk on, both ways.

    delay_s: before each chunk. is_holding: chunks wait, and come when it heals, as after a route
    was lost. is_black_hole: everything is swallowed, and nothing said. damage: one of DAMAGES, or
    "" for none, on every `damage_every`th chunk. `cut` resets what is open.
    """

    def __init__(self, port: int, seed: int = 0) -> None:
        super().__init__(port, lambda: None)
        self.delay_s = 0.0
        self.is_holding = False
        self.is_black_hole = False
        self.damage = ""
        self.damage_every = 5
        self.num_dropped_chunks = 0
        self.num_damaged_chunks = 0
        self._num_chunks = 0
        self._random = random.Random(seed)

    def cut(self) -> None:
        """All connections that are open now."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(WAIT_S)

    async def _cut(self) -> None:
        tasks = tuple(self._tasks)
        self.num_cuts += len(tasks)
        for task in tasks:
            task.cancel()

    def spoil(self, fault: str, delay_s: float = 0.01) -> None:
        """One of FAULTS, until it heals; `delay_s` is that of "slow"."""
        if fault == "slow":
            self.delay_s = delay_s
        elif fault == "cut":
            self.cut()
        elif fault in DAMAGES:
            self.damage = fault
        else:
            self.is_holding, self.is_black_hole = fault == "held", fault == "black hole"

    def heal(self) -> None:
        """New connections work. A TCP stream that lost bytes cannot go on, so old ones are cut."""
        had_lost = self.is_black_hole or bool(self.damage)
        self.is_black_hole, self.is_holding, self.delay_s, self.damage = False, False, 0.0, ""
        if had_lost:
            self.cut()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
    ) -> None:
        del left
        kept = b""
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                while self.is_holding:
                    await asyncio.sleep(POLL_S)
                if self.is_black_hole:
                    self.num_dropped_chunks += 1
                    continue
                data, kept = self._damaged(data, kept)
                writer.write(data)
                await writer.drain()

    def _damaged(self, data: bytes, kept: bytes) -> tuple[bytes, bytes]:
        """What is written now, and what behind the next chunk."""
        self._num_chunks += 1
        if kept:
            return data + kept, b""
        if not self.damage or self._num_chunks % self.damage_every:
            return data, b""
        self.num_damaged_chunks += 1
        if self.damage == "flip":
            place = self._random.randrange(len(data))
            bit = 1 << self._random.randrange(8)
            return data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :], b""
        if self.damage == "repeat":
            return data + data, b""
        return b"", data if self.damage == "swap" else b""
