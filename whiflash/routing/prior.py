"""Survival of an arm that was never seen, from what it costs."""

from __future__ import annotations

import numpy as np

from whiflash.routing.costs import Costs
from whiflash.routing.survival import Survival

_OPTIMISM = 1.1
_MAX_EDGE = 0.95


class PriorSurvival:
    """A chain p, p^2, p^3, ... whose tokens are worth just over its cost to a lone row.

    So an unknown arm is tried where trying is cheap (one row), not where it is dear (a full
    batch), and what comes of it takes over from there.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._known: dict[tuple[str, int], Survival] = {}

    def of(self, arm: str, max_nodes: int) -> Survival:
        """Float64 [max_nodes], non-increasing."""
        key = arm, max_nodes
        if key not in self._known:
            ranks = np.arange(1, max_nodes + 1, dtype=np.float64)
            self._known[key] = np.power(self._edge(arm, max_nodes), ranks)
        return self._known[key]

    def forget_arm(self, arm: str) -> None:
        """Its cost is another one."""
        self._known = {key: odds for key, odds in self._known.items() if key[0] != arm}

    def _edge(self, arm: str, max_nodes: int) -> float:
        """The edge probability, by bisection: the chain's tokens grow with it."""
        table = self._costs.verify_table(1, max_nodes + 1)
        rate = 1.0 / max(self._costs.plain_ms(1), 1e-6)
        extra = table - table[0] + self._costs.draft_ms(arm, 1)
        ranks = np.arange(1, max_nodes + 1)
        low, high = 0.0, _MAX_EDGE
        for _ in range(20):
            edge = 0.5 * (low + high)
            gain = np.cumsum(edge**ranks) - _OPTIMISM * rate * extra[1:]
            low, high = (low, edge) if gain.max(initial=-1.0) > 0.0 else (edge, high)
        return high
