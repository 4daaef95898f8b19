"""A gRPC server that listens again when it ended by itself.

One call whose path is not UTF-8 (a flipped bit, a stranger's probe) ends the loop of grpcio's
asyncio server, and with it the server: no process would notice (grpcio 1.85).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc

from whiflash.core.errors import ConfigError

logger = logging.getLogger(__name__)
POLL_S, RETRY_S = 0.2, 0.1
MAX_SERVERS = 8
"""With those that ended, whose calls may go on."""


class KeptServer:
    """For the event loop that starts it. make: a server that is bound and was not started; asked
    again, for the same port, after each end that nobody asked for. Calls that were open then go
    on. num_revivals: how often that was."""

    def __init__(self, make: Callable[[], grpc.aio.Server]) -> None:
        self._make = make
        self._servers: list[grpc.aio.Server] = []
        self._keeper: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.num_revivals = 0

    async def start(self) -> None:
        """Raises what `make` raises."""
        server = self._make()
        await server.start()
        self._servers.append(server)
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls; open ones have `grace_s` seconds. Idempotent."""
        self._is_stopped = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.gather(keeper, self._stop_all(grace_s))
        await self._stop_all(grace_s)  # one that came up meanwhile

    async def _stop_all(self, grace_s: float) -> None:
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))

    async def _keep(self) -> None:
        while not self._is_stopped:
            if await _has_ended(self._servers[-1]) and not self._is_stopped:
                logger.error("a gRPC server was ended by a broken call; it listens again")
                await self._revive()

    async def _revive(self) -> None:
        """Once its port is free again."""
        while not self._is_stopped:
            try:
                server = self._make()
            except ConfigError as error:
                logger.warning("not yet: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            await server.start()
            self._servers.append(server)
            self.num_revivals += 1
            if len(self._servers) > MAX_SERVERS:
                await self._servers.pop(0).stop(0)
            return


async def _has_ended(server: grpc.aio.Server) -> bool:
    """Whether it takes no calls any more; looks for POLL_S."""
    try:
        return not await server.wait_for_termination(POLL_S)  # True: the time was over
    except Exception:  # noqa: BLE001 - it raises what ended the server
        return True
