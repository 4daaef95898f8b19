"""The policy and its learner as a Serve deployment."""

from __future__ import annotations

from typing import Any

from ray import serve

from services.config import ClusterSettings
from services.directory import ADDRESS
from services.names import ROUTER
from services.place import listen_host
from whiflash.serving.remote.router_hosting import router_host


@serve.deployment(name=ROUTER)
class RouterHost:
    """`settings`: ClusterSettings.fixed_table(). The policy is in the deployment's user_config:
    {"policy": TEXT}."""

    async def __init__(self, settings: dict[str, Any]) -> None:
        read = ClusterSettings.of(settings)
        self._server = router_host(read.engine, listen_host(read.cluster.host), read.access())
        await self._server.start()

    async def reconfigure(self, user_config: dict[str, str]) -> None:
        """Called by Serve at the start, and whenever the user_config changes: the policy reaches
        every verifier at once. Raises ConfigError, and the old one stays."""
        if user_config["policy"] != self._server.policy:
            self._server.change_policy(user_config["policy"])

    def record_replica_metadata(self) -> dict[str, str]:
        """As the drafter's."""
        return {ADDRESS: self._server.address}

    async def locate(self) -> str:
        """Its address. A handle's first call makes Serve tell it."""
        return self._server.address

    async def __del__(self) -> None:
        """Verifiers go on with their snapshots."""
        await self._server.stop(1.0)
