"""A real gRPC server on 127.0.0.1 in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from whiflash.serving.auth import Authenticator
from whiflash.serving.backend import Backend
from whiflash.serving.generation import GenerationService, ServiceLimits
from whiflash.serving.grpc.server import GrpcLimits, GrpcServer
from whiflash.serving.trajectories.desk import StoreDesk

START_S, STOP_S = 60.0, 30.0

T = TypeVar("T")


class GrpcTestServer:
    """Serves `backend` (not owned) while the context is open. `service` may only be used through
    `call`, on the server's own event loop."""

    def __init__(
        self,
        backend: Backend,
        auth: Authenticator | None = None,
        service_limits: ServiceLimits | None = None,
        limits: GrpcLimits | None = None,
        port: int = 0,
        desk: StoreDesk | None = None,
    ) -> None:
        self.backend = backend
        self.service = GenerationService(backend, auth, service_limits)
        self.server = GrpcServer(self.service, port=port, limits=limits, desk=desk)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="test-grpc-server", daemon=True
        )

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def call(self, work: Callable[[], T]) -> T:
        """The result of `work`, done on the server's loop."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(STOP_S)

    def drain(self, timeout_s: float) -> bool:
        """As GenerationService.drain."""
        future = asyncio.run_coroutine_threadsafe(self.service.drain(timeout_s), self._loop)
        return future.result(timeout_s + STOP_S)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(START_S)
        except BaseException:
            self._join()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(STOP_S)
        self._join()

    def _join(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)
        assert not self._thread.is_alive(), "the test server did not stop"
        self._loop.close()

    async def _end(self) -> None:
        await self.server.stop()
        await self.service.drain(0.0)
        self.service.check_integrity()
