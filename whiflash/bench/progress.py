"""What a suite says while it runs."""

from __future__ import annotations

import sys
import time
from typing import Final

_STARTED: Final = time.perf_counter()


def say(what: str) -> None:
    """To standard error, behind the seconds since the start."""
    print(f"[{time.perf_counter() - _STARTED:5.0f} s] {what}", file=sys.stderr, flush=True)
