"""The policy and its learner as a Serve deployment."""

from __future__ import annotations

from typing import Any

from ray import serve

from services.config import ClusterSettings
from services.directory import ADDRESS
from services.place import listen_host
from whiflash.serving.remote.hosting import router_host

NAME = "router"


@serve.deployment(name=NAME)
class RouterHost:
    """`settings`: ClusterSettings.as_table()."""

    async def __init__(self, settings: dict[str, Any]) -> None:
        read = ClusterSettings.of(settings)
        self._server = router_host(read.engine, listen_host(read.cluster.host), read.access())
        await self._server.start()

    def record_replica_metadata(self) -> dict[str, str]:
        """As the drafter's."""
        return {ADDRESS: self._server.address}

    async def locate(self) -> str:
        """Its address. A handle's first call makes Serve tell it."""
        return self._server.address

    async def __del__(self) -> None:
        """Verifiers go on with their snapshots."""
        await self._server.stop(1.0)
