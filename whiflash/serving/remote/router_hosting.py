"""Hosts of a verifier's policy, in a process that loads no model."""

from __future__ import annotations

from whiflash.config import EngineConfig
from whiflash.models.files import ModelFiles
from whiflash.models.sources import resolve
from whiflash.rpc.access import Access
from whiflash.rpc.router_server import RouterServer


def router_host(
    config: EngineConfig,
    host: str = "127.0.0.1",
    access: Access | None = None,
    port: int = 0,
) -> RouterServer:
    """The policy of `config`, for the event loop that starts it. Raises ConfigError."""
    fingerprint = ModelFiles.at(resolve(config.model)).fingerprint()
    return RouterServer(config.policy, fingerprint, host, port, access=access)
