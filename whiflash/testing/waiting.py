"""Waiting for what comes about by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.02


def wait_for(
    holds: Callable[[], object], limit_s: float = 15.0, what: str = "it did not come about"
) -> None:
    """Polls until `holds()` is true. Raises AssertionError with `what` when time is over."""
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s, what
        time.sleep(POLL_S)
