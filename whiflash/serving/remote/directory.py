"""Where the verifiers are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Directory(Protocol):
    """May be read from any thread."""

    def addresses(self) -> frozenset[str]:
        """host:port of every verifier that is believed to run now."""


class FixedDirectory:
    """Addresses that were given once; `set` replaces them."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = frozenset(addresses)

    def addresses(self) -> frozenset[str]:
        return self._addresses

    def set(self, addresses: Iterable[str]) -> None:
        """From now on."""
        self._addresses = frozenset(addresses)
