"""A verifier as a process of its own: the engine, its service, and the order of start and end."""

from __future__ import annotations

import asyncio
from typing import Any

from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.config import EngineConfig
from whiflash.engine.engine import Engine
from whiflash.rpc.access import Access
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.serving.remote.outside import RemoteParts
from whiflash.serving.remote.server import VerifierServer
from whiflash.serving.remote.servicer import VerifierServicer


class _Described(EmbeddedBackend):
    """Whose plan says how the parts that run elsewhere do."""

    def __init__(self, engine: Engine, name: str, outside: RemoteParts | None) -> None:
        super().__init__(engine, name)
        self._outside = outside

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        if self._outside is None:
            return plan
        outside = self._outside.describe()
        return {**plan, "policy": self._outside.policy_text or plan["policy"], "outside": outside}


class VerifierHost:
    """Owns the engine. Building it loads the model and blocks; `start` belongs to the event loop
    that serves. Raises what Engine raises."""

    def __init__(
        self,
        config: EngineConfig,
        name: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        access: Access | None = None,
        outside: RemoteParts | None = None,
    ) -> None:
        self.outside = outside
        self.engine = Engine(config, constraints=GrammarCompiler, outside=outside)
        self.backend = _Described(self.engine, name, outside)
        servicer = VerifierServicer(self.backend, self.engine.tokenizer.fingerprint)
        self.server = VerifierServer(servicer, host, port, access)

    @property
    def is_sound(self) -> bool:
        """The engine's loop is alive; once it is not, only a new process helps."""
        return self.engine.is_running

    async def start(self) -> str:
        """Listens, then warms up: gateways find it, and see that it is not ready yet. The address
        to publish. Raises ConfigError if it is taken."""
        await self.server.start()
        await asyncio.to_thread(self.backend.warm_up)
        return self.server.address

    async def drain(self, timeout_s: float) -> bool:
        """Takes nothing new; running requests end, or are moved by their gateways after
        `timeout_s`. True if none had to be."""
        return await self.server.drain(timeout_s)

    async def stop(self) -> None:
        """After the drain. Idempotent."""
        await self.server.stop()
        await asyncio.to_thread(self.engine.close)
