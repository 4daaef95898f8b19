"""When a decode step runs wholly plain, to be measured."""

from __future__ import annotations

import random

from whiflash.core.rows import StepCost
from whiflash.routing.price import load_bucket


class PlainSteps:
    """A share of the decode steps of each load bucket.

    Steps that looked for no draft anyway count, so a batch that has none is never forced. The gap
    between two is drawn at random, so that no periodic load is always met in the same phase.
    """

    def __init__(self, share: float, seed: int = 0) -> None:
        self._share = share
        self._random = random.Random(seed)
        self._steps_left: dict[int, int] = {}
        self.num_forced = 0

    def force(self, rows: int) -> bool:
        """Whether the next step shall be plain, asked once before each at the load of the last:
        where loads swing, the step may fall into another bucket, and counts there."""
        if self._share <= 0.0:
            return False
        bucket = load_bucket(rows)
        if self._steps_left.setdefault(bucket, self._gap()) > 0:
            return False
        self._steps_left[bucket] = self._gap()
        self.num_forced += 1
        return True

    def observe(self, step: StepCost, rows: int) -> None:
        """After every step with `rows` decode rows."""
        if not step.was_decode_only or self._share <= 0.0:
            return
        bucket = load_bucket(rows)
        left = self._steps_left.setdefault(bucket, self._gap())
        self._steps_left[bucket] = self._gap() if step.was_bare else left - 1

    def _gap(self) -> int:
        """Other steps until the next plain one: mean 1 / share - 1."""
        mean = 1.0 / self._share - 1.0
        return round(self._random.uniform(0.5, 1.5) * mean)
