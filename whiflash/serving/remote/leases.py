"""Where a session was last, told between gateways through Redis: a hint that nothing depends on.

A lease is `ADDRESS INCARNATION` under a key that tells neither caller nor run, and it expires. Two
gateways that disagree send one session to two verifiers: each request brings all it needs, so
that costs a prefix and no text.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import redis

from whiflash.trajectories.breaker import Breaker
from whiflash.trajectories.redis_log.server import open_client

LEASE_S = 600.0
LOOK_S = 0.02
"""The most that a request waits for a hint."""

TIMEOUT_S = 0.25
"""Of the one thread that asks; a connection may take longer to make than a request waits."""

MAX_NOTED = 65_536
MAX_PENDING = 256
_PREFIX = "dr:lease:"


@dataclass(frozen=True, slots=True)
class Lease:
    """Who had a session last. incarnation: after a restart its caches are empty."""

    address: str
    incarnation: str


class Look(StrEnum):
    """How a look for a lease ended."""

    FOUND = "found"
    NONE = "none"
    FAILED = "failed"


class LeaseBook:
    """Leases in the Redis at `url`, for one event loop; one thread asks, so that a server which
    hangs holds up nobody. secret: what keys are made with, the same at all gateways. Raises
    ConfigError on a URL that is none."""

    def __init__(self, url: str, secret: bytes, lease_s: float = LEASE_S) -> None:
        self._client = open_client(url, TIMEOUT_S)
        self._secret = secret
        self._lease_s = lease_s
        self._breaker = Breaker()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leases")
        self._noted: OrderedDict[str, tuple[Lease, float]] = OrderedDict()
        self._pending = 0
        self.looks: Counter[Look] = Counter()

    async def find(self, session: bytes) -> Lease | None:
        """None where none is known, or Redis does not answer at once."""
        if not self._breaker.allow():
            self.looks[Look.FAILED] += 1
            return None
        asked = self._ask(self._client.get, self._key(session))
        try:
            lease = _read(await asyncio.wait_for(asked, LOOK_S))
        except (redis.RedisError, TimeoutError) as error:
            self._breaker.failure(error)
            self.looks[Look.FAILED] += 1
            return None
        self._breaker.success()
        self.looks[Look.NONE if lease is None else Look.FOUND] += 1
        return lease

    def note(self, session: bytes, lease: Lease) -> None:
        """The session is there now. Nobody waits for it; it is told again when half its time is
        over, and dropped while Redis is away or behind."""
        key, now_s = self._key(session), time.monotonic()
        known = self._noted.get(key)
        is_fresh = known is not None and known[0] == lease and now_s < known[1] + self._lease_s / 2
        if is_fresh or not self._breaker.is_closed or self._pending >= MAX_PENDING:
            return
        self._noted[key] = lease, now_s
        self._noted.move_to_end(key)
        while len(self._noted) > MAX_NOTED:
            self._noted.popitem(last=False)
        text = f"{lease.address} {lease.incarnation}"
        told = self._ask(self._client.set, key, text, px=round(1e3 * self._lease_s))
        told.add_done_callback(lambda told: self._told(key, told))

    def _told(self, key: str, told: asyncio.Future[Any]) -> None:
        """What did not get there is told with the session's next request."""
        if told.cancelled() or told.exception() is not None:
            self._noted.pop(key, None)

    async def close(self) -> None:
        """Idempotent."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        self._client.close()

    def _ask(self, command: Any, *arguments: Any, **options: Any) -> asyncio.Future[Any]:
        self._pending += 1
        asked = asyncio.wrap_future(self._thread.submit(command, *arguments, **options))
        asked.add_done_callback(self._answered)
        return asked

    def _answered(self, _: asyncio.Future[Any]) -> None:
        """Also of what was given up or failed."""
        self._pending -= 1

    def _key(self, session: bytes) -> str:
        return _PREFIX + hmac.digest(self._secret, b"lease" + session, "sha256")[:16].hex()

    def check_integrity(self) -> None:
        assert self._pending >= 0, "an answer was counted twice"
        assert len(self._noted) <= MAX_NOTED


def _read(value: Any) -> Lease | None:
    """Whatever is no lease is none: others may write there."""
    if not isinstance(value, bytes):
        return None
    address, _, incarnation = value.decode("utf-8", "replace").partition(" ")
    return Lease(address, incarnation) if address and incarnation else None
