"""Both front ends of one service in one process, from the first connection to the last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator

import uvicorn

from whiflash.core.errors import EngineClosedError
from whiflash.obs.json_logs import log_event
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.serving.generation import GenerationService
from whiflash.serving.grpc.server import GrpcServer
from whiflash.serving.openai.app import create_app

logger = logging.getLogger("whiflash.server")

WATCH_S = 0.5
"""How often the engine is looked after."""

CLOSE_S = 5.0
"""What is left of connections after the drain gets this long."""

KEEP_ALIVE_S = 75


class Server:
    """Serves until `stop` is called; `run` then drains and returns.

    http_socket: bound and listening. grpc: not started. Both are owned from here on.
    drain_s:     what open calls get at the end.
    on_ready:    called with the HTTP and the gRPC port, after the warm-up.
    """

    def __init__(
        self,
        service: GenerationService,
        backend: EmbeddedBackend,
        http_socket: socket.socket,
        grpc: GrpcServer,
        drain_s: float,
        on_ready: Callable[[int, int], None],
    ) -> None:
        self._service = service
        self._backend = backend
        self._socket = http_socket
        self._grpc = grpc
        self._drain_s = drain_s
        self._on_ready = on_ready
        self._stops = asyncio.Event()
        self._is_hurried = asyncio.Event()
        self._http = _HttpServer(
            uvicorn.Config(
                create_app(service, backend.tokenizer),
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(CLOSE_S),
            )
        )

    def stop(self) -> None:
        """Begins the drain; a second call ends it at once."""
        if self._stops.is_set():
            self._is_hurried.set()
        self._stops.set()

    async def run(self) -> None:
        """Raises EngineClosedError if the engine died under it."""
        await self._grpc.start()
        http = asyncio.create_task(self._http.serve(sockets=[self._socket]))
        try:
            await self._warm_up()
            await self._watch(http)
            await self._drain()
        finally:
            self._http.should_exit = True
            await asyncio.gather(http, self._grpc.stop(CLOSE_S))
        if not self._backend.is_running:
            raise EngineClosedError("the engine stopped after an internal error; see the log")

    async def _warm_up(self) -> None:
        """The front ends answer meanwhile: alive, not ready."""
        await asyncio.to_thread(self._backend.warm_up)
        http_port = int(self._socket.getsockname()[1])
        log_event(logger, "ready", {"http_port": http_port, "grpc_port": self._grpc.port})
        self._on_ready(http_port, self._grpc.port)

    async def _watch(self, http: asyncio.Task[None]) -> None:
        """Until somebody asks for the end, or the engine or the HTTP server has ended."""
        while self._backend.is_running and not http.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stops.wait(), WATCH_S)
                return

    async def _drain(self) -> None:
        log_event(logger, "draining", {"drain_s": self._drain_s})
        draining = asyncio.create_task(self._service.drain(self._drain_s))
        hurried = asyncio.create_task(self._is_hurried.wait())
        await asyncio.wait((draining, hurried), return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            await self._service.drain(0.0)
        hurried.cancel()
        log_event(logger, "drained", {"all_ended": await draining})


class _HttpServer(uvicorn.Server):
    """Leaves signals to us: uvicorn would close connections before the drain."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
