"""Survival of an arm that was never seen here: what its training found, or what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from whiflash.routing.costs import Costs
from whiflash.routing.survival import Survival

_OPTIMISM = 1.1
_MAX_EDGE = 0.95
_COST_DRIFT = 0.1


class PriorSurvival:
    """What was found on held-out texts where that is known (`take`), else a chain p, p^2, p^3, ...
    whose tokens are worth just over its cost to a lone row.

    So an unknown arm is tried where trying is cheap (one row), not where it is dear (a full
    batch), and what comes of it takes over from there. The chain follows the cost as that is
    learned: an arm counts as free before its first calls, and what just pays then would never pay
    again.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._found: dict[str, Survival] = {}
        self._chains: dict[tuple[str, int], tuple[float, Survival]] = {}

    def take(self, found: Mapping[str, Sequence[float]]) -> None:
        """By arm, survival by rank, non-increasing; nothing survives behind its end."""
        self._found = {arm: np.array(odds, np.float64) for arm, odds in found.items()}

    def of(self, arm: str, max_nodes: int) -> Survival:
        """Float64 [max_nodes], non-increasing."""
        if arm in self._found:
            odds = self._found[arm][:max_nodes]
            return np.pad(odds, (0, max_nodes - len(odds)))
        draft_ms = self._costs.draft_ms(arm, 1)
        known = self._chains.get((arm, max_nodes))
        if known is not None and abs(known[0] - draft_ms) <= _COST_DRIFT * known[0]:
            return known[1]
        ranks = np.arange(1, max_nodes + 1, dtype=np.float64)
        chain = np.power(self._edge(draft_ms, max_nodes), ranks)
        self._chains[arm, max_nodes] = draft_ms, chain
        return chain

    def forget_arm(self, arm: str) -> None:
        """It drafts with other weights, at another cost."""
        self._found.pop(arm, None)
        self._chains = {key: chain for key, chain in self._chains.items() if key[0] != arm}

    def _edge(self, draft_ms: float, max_nodes: int) -> float:
        """The edge probability, by bisection: the chain's tokens grow with it."""
        table = self._costs.verify_table(1, max_nodes + 1)
        rate = 1.0 / max(self._costs.plain_ms(1), 1e-6)
        extra = table - table[0] + draft_ms
        ranks = np.arange(1, max_nodes + 1)
        low, high = 0.0, _MAX_EDGE
        for _ in range(20):
            edge = 0.5 * (low + high)
            gain = np.cumsum(edge**ranks) - _OPTIMISM * rate * extra[1:]
            low, high = (low, edge) if gain.max(initial=-1.0) > 0.0 else (edge, high)
        return high
