"""Parked turns: an agent whose answer ended in a tool call is back in seconds (design.md 4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from whiflash.engine.prefix_entry import PrefixEntry

PARK_SECONDS = 30.0
"""How long a turn keeps its KV before others'. Most tools answer within seconds; a longer wait is
one for a person or a build, and the KV is then as good as any."""

NAMESPACE_SHARE = 0.25
"""Part of the KV memory that the parked turns of one namespace may hold."""


class Parking:
    """Which entries are parked. `namespace_bytes`: most of one namespace; the turn that was parked
    first gives way. `clock`: seconds."""

    def __init__(self, namespace_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._namespace_bytes = namespace_bytes
        self._clock = clock

    def park(self, entry: PrefixEntry, others: Iterable[PrefixEntry]) -> bool:
        """False where the entry alone is over its namespace's share."""
        held = entry.cache.num_bytes
        if held > self._namespace_bytes:
            return False
        own = [e for e in others if e.namespace == entry.namespace and self.is_parked(e)]
        for other in sorted(own, key=lambda e: (e.parked_until_s, e.last_used), reverse=True):
            if held + other.cache.num_bytes > self._namespace_bytes:
                other.parked_until_s = 0.0
            else:
                held += other.cache.num_bytes
        entry.parked_until_s = self._clock() + PARK_SECONDS
        return True

    def is_parked(self, entry: PrefixEntry) -> bool:
        return entry.parked_until_s > self._clock()

    def worth(self, entry: PrefixEntry) -> tuple[bool, float]:
        """For comparison: the least worth keeping goes first. Plain entries by their last use,
        parked ones behind them all, and first the one that has waited longest: the longer a turn
        has been away, the less likely it comes back in time."""
        if self.is_parked(entry):
            return True, entry.parked_until_s
        return False, float(entry.last_used)

    def check_integrity(self, entries: Iterable[PrefixEntry]) -> None:
        held: dict[str, int] = {}
        for entry in entries:
            if self.is_parked(entry):
                held[entry.namespace] = held.get(entry.namespace, 0) + entry.cache.num_bytes
        assert all(n <= self._namespace_bytes for n in held.values()), f"parked too much: {held}"
