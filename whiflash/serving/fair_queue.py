"""The queue in front of a backend: bounded, and shared fairly between tenants.

A backend takes what it is given first come, first served. So calls wait here and are handed over
when it has room: whoever has had the least of it, by weight, goes first (start-time fair queueing:
Goyal, Vin, Cheng 1996). A tenant that comes back after a pause starts level with the others: time
unused is no credit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from whiflash.core.errors import QueueFullError, RateLimitedError


@dataclass(slots=True, eq=False)
class Place:
    """One call's place. slots: choices; tokens: most prompt and answer tokens of all of them;
    cost: what the tenant is charged for it, in tokens, corrected when it ends."""

    tenant: str
    slots: int
    tokens: int
    cost: float
    ready: asyncio.Future[None]


@dataclass(slots=True)
class _Tenant:
    """served: cost handed over so far over the weight, as a point on the common time line."""

    weight: float = 1.0
    served: float = 0.0
    waiting: deque[Place] = field(default_factory=deque)
    running: int = 0


class FairQueue:
    """For one event loop.

    slots, tokens: what the backend runs at once (0 tokens: not bounded). A call that alone is
                   larger runs when nothing else does.
    max_waiting:   calls that may wait in all; max_tenant_waiting of one tenant.
    """

    def __init__(
        self, slots: int, tokens: int = 0, max_waiting: int = 256, max_tenant_waiting: int = 128
    ) -> None:
        self._slots = slots
        self._tokens = tokens
        self._max_waiting = max_waiting
        self._max_tenant_waiting = max_tenant_waiting
        self._tenants: dict[str, _Tenant] = {}
        self._now = 0.0  # `served` of the call handed over last
        self._used_slots = 0
        self._used_tokens = 0
        self._running: set[Place] = set()

    @property
    def num_waiting(self) -> int:
        return sum(len(tenant.waiting) for tenant in self._tenants.values())

    @property
    def num_running(self) -> int:
        return len(self._running)

    def enter(self, tenant: str, weight: float, slots: int, tokens: int, cost: float) -> Place:
        """A place at the end of the tenant's line, perhaps ready at once. Every place must be
        left. Raises RateLimitedError if the tenant's line is full, QueueFullError if all are."""
        book = self._tenants.get(tenant)
        if book is not None and len(book.waiting) >= self._max_tenant_waiting:
            raise RateLimitedError(
                f"{len(book.waiting)} calls of this tenant are waiting, its limit; try again later"
            )
        if self.num_waiting >= self._max_waiting:
            raise QueueFullError(f"{self.num_waiting} calls are waiting; try again later")
        if book is None:
            book = self._tenants[tenant] = _Tenant()
        if not book.waiting and not book.running:
            book.served = max(book.served, self._now)
        book.weight = weight
        ready = asyncio.get_running_loop().create_future()
        place = Place(tenant, min(slots, self._slots), tokens, cost, ready)
        book.waiting.append(place)
        self._hand_over()
        return place

    def leave(self, place: Place, used: float | None = None) -> None:
        """The call ended, or gave up waiting. `used` is what it really cost; None leaves the
        charge. Idempotent."""
        book = self._tenants.get(place.tenant)
        if book is None:
            return
        if place in self._running:
            self._running.remove(place)
            book.running -= 1
            self._used_slots -= place.slots
            self._used_tokens -= place.tokens
            if used is not None:
                book.served += (used - place.cost) / book.weight
        elif place in book.waiting:
            book.waiting.remove(place)
        self._forget_idle(place.tenant, book)
        self._hand_over()

    def _hand_over(self) -> None:
        while (book := self._next()) is not None and self._has_room(book.waiting[0]):
            place = book.waiting.popleft()
            self._now = max(self._now, book.served)
            book.served += place.cost / book.weight
            book.running += 1
            self._running.add(place)
            self._used_slots += place.slots
            self._used_tokens += place.tokens
            if not place.ready.done():
                place.ready.set_result(None)

    def _next(self) -> _Tenant | None:
        """Who has had least. If its call does not fit yet, nobody overtakes it: a large call
        would otherwise wait for ever."""
        waiting = [book for book in self._tenants.values() if book.waiting]
        return min(waiting, key=lambda book: book.served, default=None)

    def _has_room(self, place: Place) -> bool:
        if not self._running:
            return True
        has_tokens = not self._tokens or self._used_tokens + place.tokens <= self._tokens
        return has_tokens and self._used_slots + place.slots <= self._slots

    def _forget_idle(self, tenant: str, book: _Tenant) -> None:
        """Books of tenants that owe nothing are dropped; the others keep theirs until the
        common time has caught up with them."""
        if not book.waiting and not book.running and book.served <= self._now:
            del self._tenants[tenant]

    def check_integrity(self) -> None:
        assert self._used_slots == sum(place.slots for place in self._running)
        assert self._used_tokens == sum(place.tokens for place in self._running)
        assert len(self._running) == sum(book.running for book in self._tenants.values())
        for book in self._tenants.values():
            assert all(not place.ready.done() or place.ready.cancelled() for place in book.waiting)
        if self.num_waiting and not self._running:
            raise AssertionError("calls wait beside an idle backend")
