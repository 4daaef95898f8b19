"""Policies that no server would use."""

from __future__ import annotations

import random
from collections.abc import Sequence

from whiflash.core.rows import Outcome, Prediction, RouteRow


class RandomPolicy:
    """Picks an arm and a budget per row at random: every mix of arms in one forward."""

    name = "random"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        return [
            Prediction(fixed=(self._rng.choice(row.arms), self._rng.randint(0, row.max_nodes)))
            for row in rows
        ]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learns nothing."""
