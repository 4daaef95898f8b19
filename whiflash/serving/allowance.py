"""What one key may use: calls in flight, and tokens per minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from whiflash.core.errors import RateLimitedError
from whiflash.serving.caller import Caller
from whiflash.serving.keys import KeyLimits

_SECONDS = 60.0
Clock = Callable[[], float]


class TokenBucket:
    """Refills at `per_minute`, holds a minute's worth. A call is let in while anything is left
    and pays what it used when it ends, so the level may fall below zero: nobody knows beforehand
    how long an answer gets, and a call in progress is never cut for its allowance."""

    def __init__(self, per_minute: int, clock: Clock = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._level = float(per_minute)
        self._filled_at = clock()

    def wait_s(self) -> float:
        """Seconds until the next call may start; 0 for now."""
        self._refill()
        if self._level > 0:
            return 0.0
        return (1.0 - self._level) * _SECONDS / self._per_minute

    def pay(self, tokens: int) -> None:
        self._refill()
        self._level -= tokens

    def _refill(self) -> None:
        now = self._clock()
        gained = (now - self._filled_at) * self._per_minute / _SECONDS
        self._level = min(self._level + gained, float(self._per_minute))
        self._filled_at = now


class Allowances:
    """Books of all keys, by key id. For one event loop."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._in_flight: dict[str, int] = {}
        self._buckets: dict[str, TokenBucket] = {}

    @contextmanager
    def call(self, caller: Caller, limits: KeyLimits) -> Iterator[None]:
        """Holds one call in flight. Raises RateLimitedError saying when to come back."""
        key = caller.key_id
        count = self._in_flight.get(key, 0)
        if limits.max_in_flight is not None and count >= limits.max_in_flight:
            raise RateLimitedError(
                f"this key has {count} requests in flight, its limit; wait for one to end"
            )
        self._check_rate(key, limits)
        self._in_flight[key] = count + 1
        try:
            yield
        finally:
            self._leave(key)

    def pay(self, caller: Caller, tokens: int) -> None:
        """Tokens that a call used, prompt and answer; cached ones cost nothing."""
        if (bucket := self._buckets.get(caller.key_id)) is not None:
            bucket.pay(tokens)

    def in_flight(self, caller: Caller) -> int:
        return self._in_flight.get(caller.key_id, 0)

    def _check_rate(self, key: str, limits: KeyLimits) -> None:
        if limits.tokens_per_minute is None:
            return
        if key not in self._buckets:
            self._buckets[key] = TokenBucket(limits.tokens_per_minute, self._clock)
        wait_s = self._buckets[key].wait_s()
        if wait_s > 0:
            raise RateLimitedError(
                f"this key's {limits.tokens_per_minute} tokens per minute are used up; "
                f"come back in {wait_s:.0f} s",
                wait_s,
            )

    def _leave(self, key: str) -> None:
        self._in_flight[key] -= 1
        if not self._in_flight[key]:
            del self._in_flight[key]

    def check_integrity(self) -> None:
        assert all(count > 0 for count in self._in_flight.values())
