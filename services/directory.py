"""The verifiers of a Serve application that this process has heard of."""

from __future__ import annotations

from collections.abc import Iterable

ADDRESS = "address"
"""What a replica publishes by `record_replica_metadata`."""


class _Known:
    addresses: frozenset[str] = frozenset()


def publish(addresses: Iterable[str]) -> None:
    """All verifiers that run now; told by services.address_router."""
    _Known.addresses = frozenset(addresses)


class ServeDirectory:
    """The addresses that this process was told last; none before its first handle call."""

    def addresses(self) -> frozenset[str]:
        return _Known.addresses
