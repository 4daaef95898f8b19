"""A TCP relay that cuts its connections, as networks and dying servers do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK_BYTES = 4096
WAIT_S = 30.0


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


class FaultyRelay(CuttingRelay):
    """A relay whose connections all fail alike. delay_s: before each chunk, both ways;
    is_black_hole: everything is swallowed, and nothing said; `cut` resets what is open."""

    def __init__(self, port: int) -> None:
        super().__init__(port, lambda: None)
        self.delay_s = 0.0
        self.is_black_hole = False
        self.num_dropped_chunks = 0

    def cut(self) -> None:
        """All connections that are open now."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(WAIT_S)

    async def _cut(self) -> None:
        tasks = tuple(self._tasks)
        self.num_cuts += len(tasks)
        for task in tasks:
            task.cancel()

    def heal(self) -> None:
        """New connections work. A TCP stream that lost bytes cannot go on, so old ones are cut."""
        had_lost, self.is_black_hole, self.delay_s = self.is_black_hole, False, 0.0
        if had_lost:
            self.cut()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
    ) -> None:
        del left
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self.is_black_hole:
                    self.num_dropped_chunks += 1
                else:
                    writer.write(data)
                    await writer.drain()
