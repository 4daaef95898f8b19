"""Scripted verifiers with real gRPC servers, in this process and on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from whiflash.serving.remote.backend import MoveLimits, RemoteBackend, served_model
from whiflash.serving.remote.directory import FixedDirectory
from whiflash.serving.remote.pool import VerifierPool
from whiflash.serving.remote.server import VerifierServer
from whiflash.serving.remote.servicer import VerifierServicer
from whiflash.testing.backends import ScriptedBackend

T = TypeVar("T")
START_S, RUN_S = 10.0, 30.0


class Cluster:
    """Scripted verifiers by number, and a gateway's backend over those that are up."""

    def __init__(self, verifiers: list[ScriptedBackend], limits: MoveLimits) -> None:
        self.verifiers = verifiers
        self.directory = FixedDirectory(())
        self.pool = VerifierPool(self.directory)
        self.servers: dict[int, VerifierServer] = {}
        self._limits = limits

    async def start(self, number: int, tokenizer: str = "characters", port: int = 0) -> None:
        servicer = VerifierServicer(self.verifiers[number], tokenizer)
        server = self.servers[number] = VerifierServer(servicer, port=port)
        await server.start()
        self._publish()

    async def kill(self, number: int) -> None:
        """Its connections are cut; the directory does not know yet."""
        await self.servers.pop(number).stop()

    async def open(self) -> RemoteBackend:
        for number in range(len(self.verifiers)):
            await self.start(number)
        self.pool.open()
        description = await self.pool.first(START_S)
        while len(self.pool.live()) < len(self.verifiers):
            await asyncio.sleep(0.01)
        model = served_model(description.model, "", len(self.verifiers))
        first = self.verifiers[0]
        return RemoteBackend(self.pool, model, first.tokenizer, first.chat, limits=self._limits)

    async def close(self) -> None:
        await self.pool.close()
        for server in self.servers.values():
            await server.drain(0.0)
            await server.stop()
            await _calls_ended(server)
            server.servicer.check_integrity()
            assert server.servicer.num_running == 0

    def _publish(self) -> None:
        self.directory.set(server.address for server in self.servers.values())


async def _calls_ended(server: VerifierServer) -> None:
    """A cancelled call still has its end to run when its server has stopped."""
    for _ in range(200):
        if server.servicer.num_running == 0:
            return
        await asyncio.sleep(0.01)


Scenario = Callable[[RemoteBackend, Cluster], Awaitable[T]]


@pytest.fixture
def on_cluster() -> Callable[..., Any]:
    """`on_cluster(scenario, *verifiers, **limits)`: runs it, and checks that nothing is left."""

    def run(scenario: Scenario[T], *verifiers: ScriptedBackend, **limits: Any) -> T:
        async def whole() -> T:
            async with _cluster([*verifiers], MoveLimits(**limits)) as (backend, cluster):
                result = await asyncio.wait_for(_awaited(scenario(backend, cluster)), RUN_S)
                assert backend.num_in_flight == 0
                backend.check_integrity()
                return result

        result = asyncio.run(whole())
        assert all(verifier.running == 0 for verifier in verifiers)
        return result

    return run


async def _awaited(work: Awaitable[T]) -> T:
    return await work


@asynccontextmanager
async def _cluster(
    verifiers: list[ScriptedBackend], limits: MoveLimits
) -> AsyncIterator[tuple[RemoteBackend, Cluster]]:
    cluster = Cluster(verifiers, limits)
    try:
        yield await cluster.open(), cluster
    finally:
        await cluster.close()
