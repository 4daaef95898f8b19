"""The verifier as a Serve deployment: engine and own gRPC server; Serve sees to its life."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from whiflash.core.openmp import BRIEF_SPINS

os.environ.setdefault(*BRIEF_SPINS)  # before torch is imported

from ray import serve
from ray.serve.handle import DeploymentHandle

from services.config import ClusterSettings
from services.directory import ADDRESS, ServeDirectory
from services.names import ROUTER, VERIFIER, drafter_name
from services.place import listen_host
from whiflash.serving.remote.host import VerifierHost
from whiflash.serving.remote.outside import RemoteParts
from whiflash.serving.remote.placement import rendezvous

LOOK_S = 0.25
"""How soon a drafter that came back elsewhere is looked for there."""


@serve.deployment(name=VERIFIER)
class Verifier:
    """`settings`: ClusterSettings.fixed_table(). `drafters`: by kind; they and the router are only
    asked where they are, the rest goes over streams of their own."""

    async def __init__(
        self,
        settings: dict[str, Any],
        drafters: dict[str, DeploymentHandle],
        router: DeploymentHandle | None,
    ) -> None:
        read = ClusterSettings.of(settings)
        self._kinds = tuple(drafters)
        self._drain_s = read.cluster.verifier.drain_s
        handles = [*drafters.values(), *([router] if router is not None else [])]
        outside: RemoteParts | None = None
        if handles:
            outside = RemoteParts(
                frozenset(drafters), router is not None, read.access(), read.engine.device,
                read.cluster.verifier.hold_ms,
            )  # fmt: skip
        self._host = await asyncio.to_thread(
            VerifierHost, read.engine, read.server.served_name, listen_host(read.cluster.host), 0,
            read.access(), outside,
        )  # fmt: skip
        self._followers = [asyncio.ensure_future(_asked(handle)) for handle in handles]
        if outside is not None:
            self._followers.append(asyncio.create_task(self._follow(outside)))
        await self._host.start()

    async def _follow(self, outside: RemoteParts) -> None:
        """Each verifier keeps to one replica of a drafter while that one lives."""
        directories = {kind: ServeDirectory(drafter_name(kind)) for kind in self._kinds}
        router = ServeDirectory(ROUTER)
        while True:
            mine = self._host.server.address.encode()
            found = {
                kind: rendezvous(mine, sorted(directory.addresses()))[0]
                for kind, directory in directories.items()
                if directory.addresses()
            }
            outside.locate(found, next(iter(router.addresses()), None))
            await asyncio.sleep(LOOK_S)

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
        for follower in self._followers:
            follower.cancel()
        await self._host.stop()


async def _asked(handle: DeploymentHandle) -> None:
    """A first call, answered once a replica is there: from then on Serve tells the addresses."""
    await handle.locate.remote()
