"""The verifier as a Serve deployment: engine and own gRPC server; Serve sees to its life."""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from ray import serve

from services.config import NODE, ClusterSettings
from services.directory import ADDRESS
from whiflash.serving.remote.host import VerifierHost

NAME = "verifier"


@serve.deployment(name=NAME)
class Verifier:
    """`settings`: ClusterSettings.as_table()."""

    async def __init__(self, settings: dict[str, Any]) -> None:
        read = ClusterSettings.of(settings)
        host = read.cluster.host
        address = ray.util.get_node_ip_address() if host == NODE else host
        self._drain_s = read.cluster.verifier.drain_s
        self._host = await asyncio.to_thread(
            VerifierHost, read.engine, read.server.served_name, address, 0, read.access()
        )
        await self._host.start()

    def record_replica_metadata(self) -> dict[str, str]:
        """Asked for by Serve once; gateways find it in their directory."""
        return {ADDRESS: self._host.server.address}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Signals of services.scaling; streams of gateways are nothing that Serve could count."""
        load, slots = self._host.backend.load(), self._host.backend.model.slots
        return {
            "busy": (load.running + load.waiting) / slots,
            "waiting": float(load.waiting),
            "kv": load.kv_bytes / max(load.kv_limit_bytes, 1),
        }

    async def status(self) -> dict[str, Any]:
        """The resolved plan, for a handle's first call too: it makes Serve tell the addresses."""
        return self._host.backend.plan()

    def check_health(self) -> None:
        """Raises once the engine is dead: Serve then starts another replica."""
        if not self._host.is_sound:
            raise RuntimeError("the engine stopped after an internal error; see the log")

    async def __del__(self) -> None:
        """Serve's way to say that the replica is to go: turns end, or are moved."""
        await self._host.drain(self._drain_s)
        await self._host.stop()
