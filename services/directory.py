"""The replicas that this process has heard of, by deployment."""

from __future__ import annotations

from collections.abc import Iterable

ADDRESS = "address"
"""What a replica publishes by `record_replica_metadata`."""

_known: dict[str, frozenset[str]] = {}


def publish(deployment: str, addresses: Iterable[str]) -> None:
    """All replicas that run now; told by services.address_router."""
    _known[deployment] = frozenset(addresses)


class ServeDirectory:
    """The addresses of a deployment that this process was told last; none before its first call
    of a handle to it."""

    def __init__(self, deployment: str) -> None:
        self._deployment = deployment

    def addresses(self) -> frozenset[str]:
        return _known.get(self._deployment, frozenset())
