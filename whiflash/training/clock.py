"""How long a command may still work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class TimeLimit:
    """`minutes` from now on; None is for ever. `now` counts seconds."""

    def __init__(self, minutes: float | None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._end_s = math.inf if minutes is None else now() + 60 * minutes

    @property
    def left_s(self) -> float:
        """Seconds, 0 once it is over."""
        return max(self._end_s - self._now(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.left_s == 0.0
