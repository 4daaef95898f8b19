"""A neural drafter as a Serve deployment: verifiers talk to its own gRPC server."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from whiflash.core.openmp import BRIEF_SPINS

os.environ.setdefault(*BRIEF_SPINS)  # before torch is imported

from ray import serve

from services.config import ClusterSettings
from services.directory import ADDRESS
from services.place import listen_host
from services.scaling import BusyShare
from whiflash.rpc.drafter_server import DrafterServer
from whiflash.serving.remote.hosting import drafter_host


@serve.deployment
class DrafterHost:
    """`settings`: ClusterSettings.fixed_table(); `kind`: as `eagle3`; `drafter`: with its weights,
    as `eagle3:FOLDER,...`. The deployment's user_config names it too, {"drafter": ...}, so that it
    can be changed in place."""

    async def __init__(self, settings: dict[str, Any], kind: str, drafter: str) -> None:
        self._settings = ClusterSettings.of(settings)
        self._kind = kind
        self._drafter = drafter
        self._server = await asyncio.to_thread(self._load, drafter, 0)
        await self._server.start()
        self._busy = BusyShare(time.monotonic())

    async def reconfigure(self, user_config: dict[str, str]) -> None:
        """Called by Serve at the start, and whenever the user_config changes: the new weights are
        loaded beside the old ones, then serve at the same address. Raises ConfigError or
        ModelError, and the old ones stay."""
        drafter, old = user_config["drafter"], self._server
        if drafter != self._drafter:
            new = await asyncio.to_thread(self._load, drafter, old.server.port)
            await old.drain()
            await old.stop()
            await new.start()
            self._server, self._drafter = new, drafter

    def _load(self, drafter: str, port: int) -> DrafterServer:
        read = self._settings
        table = read.cluster.drafters[self._kind]
        return drafter_host(
            read.engine.model_copy(update={"drafters": (drafter,)}), self._kind, table.dtype,
            table.memory, listen_host(read.cluster.host), read.access(), port,
        )  # fmt: skip

    def record_replica_metadata(self) -> dict[str, str]:
        """Asked for by Serve once, before `reconfigure`; verifiers find it in their directory."""
        return {ADDRESS: self._server.address}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """The signal of services.scaling: the share of the time since the last report that went
        into drafting. Verifiers wait for a drafter that is always at work."""
        return {"busy": self._busy.since_last(self._server.desk.busy_s, time.monotonic())}

    async def locate(self) -> str:
        """Its address. A handle's first call makes Serve tell all of them."""
        return self._server.address

    async def __del__(self) -> None:
        """Verifiers are told to go on without it."""
        await self._server.drain()
        await self._server.stop(1.0)
