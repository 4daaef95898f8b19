"""The switch that keeps a failing store from being asked over and over."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from enum import StrEnum

MAX_FAILURES = 3
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
JITTER = 0.5
MAX_ERROR_CHARS = 200


class BreakerState(StrEnum):
    """closed: asked as usual. open: not asked. half_open: one probe is on its way."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Opens after MAX_FAILURES failures in a row; then one caller may try again after a pause,
    which doubles with every failed probe up to MAX_PAUSE_S. Pauses are drawn up to JITTER longer
    or shorter, so that replicas do not come back all at once. Safe to use from several threads."""

    def __init__(
        self,
        max_failures: int = MAX_FAILURES,
        first_pause_s: float = FIRST_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_failures = max_failures
        self._first_pause_s = first_pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._failures_in_a_row = 0
        self._pause_s = first_pause_s
        self._retry_at = 0.0
        self.num_failures = 0
        self.num_opened = 0
        self.last_error = ""

    @property
    def state(self) -> BreakerState:
        return self._state

    @property
    def is_closed(self) -> bool:
        return self._state is BreakerState.CLOSED

    def allow(self) -> bool:
        """Whether the store may be asked now. After True, `success` or `failure` must follow."""
        with self._lock:
            if self._state is BreakerState.CLOSED:
                return True
            # A probe that never reported back must not keep the store away for good.
            if self._clock() < self._retry_at:
                return False
            self._state = BreakerState.HALF_OPEN
            self._retry_at = self._clock() + self._drawn_pause_s()
            return True

    @property
    def retry_in_s(self) -> float:
        """Until the next probe; 0 where the store may be asked."""
        with self._lock:
            if self._state is BreakerState.CLOSED:
                return 0.0
            return max(self._retry_at - self._clock(), 0.0)

    def success(self) -> None:
        with self._lock:
            self._state = BreakerState.CLOSED
            self._failures_in_a_row = 0
            self._pause_s = self._first_pause_s

    def failure(self, error: Exception | str) -> None:
        with self._lock:
            self.num_failures += 1
            self._failures_in_a_row += 1
            self.last_error = _one_line(error)
            was_probe = self._state is BreakerState.HALF_OPEN
            if was_probe:
                self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
            if was_probe or self._failures_in_a_row >= self._max_failures:
                self.num_opened += self._state is BreakerState.CLOSED
                self._state = BreakerState.OPEN
                self._retry_at = self._clock() + self._drawn_pause_s()

    def _drawn_pause_s(self) -> float:
        return self._pause_s * random.uniform(1 - JITTER, 1 + JITTER)

    def check_integrity(self) -> None:
        with self._lock:
            assert self._first_pause_s <= self._pause_s <= max(MAX_PAUSE_S, self._first_pause_s)
            if self._state is BreakerState.CLOSED:
                assert self._failures_in_a_row < self._max_failures, self._failures_in_a_row


def _one_line(error: Exception | str) -> str:
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:MAX_ERROR_CHARS]
