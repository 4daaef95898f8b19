"""A neural drafter as a Serve deployment: verifiers talk to its own gRPC server."""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve

from services.config import ClusterSettings
from services.directory import ADDRESS
from services.place import listen_host
from whiflash.serving.remote.hosting import drafter_host


def drafter_name(kind: str) -> str:
    """Of the deployment."""
    return f"drafter_{kind}"


@serve.deployment
class DrafterHost:
    """`settings`: ClusterSettings.as_table(); `kind`: as `eagle3`."""

    async def __init__(self, settings: dict[str, Any], kind: str) -> None:
        read = ClusterSettings.of(settings)
        table = read.cluster.drafters[kind]
        self._server = await asyncio.to_thread(
            drafter_host, read.engine, kind, table.dtype, table.memory,
            listen_host(read.cluster.host), read.access(),
        )  # fmt: skip
        await self._server.start()

    def record_replica_metadata(self) -> dict[str, str]:
        """Asked for by Serve once; verifiers find it in their directory."""
        return {ADDRESS: self._server.address}

    async def locate(self) -> str:
        """Its address. A handle's first call makes Serve tell all of them."""
        return self._server.address

    async def __del__(self) -> None:
        """Verifiers are told to go on without it."""
        await self._server.drain()
        await self._server.stop(1.0)
