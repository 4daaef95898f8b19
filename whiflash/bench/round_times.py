"""What of a round's time goes into choosing arms, and into bringing drafters up to their roots."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from whiflash.engine.core import EngineCore


@dataclass(slots=True)
class RoundTimes:
    """Sums over steps without prefill, in milliseconds.

    routing_ms: signals, looking whether a draft may pay, opening rows, the choice, trimming, and
    what the policy learns afterwards; proposals themselves are left out.
    catch_up_ms: drafters absorbing what they missed while other arms drafted, the prompt included.
    """

    rounds_ms: float = 0.0
    routing_ms: float = 0.0
    catch_up_ms: float = 0.0

    def step(self, core: EngineCore) -> None:
        """One step of the engine."""
        before, started = core.last_cost, time.perf_counter()
        core.step()
        took_ms = 1e3 * (time.perf_counter() - started)
        cost = core.last_cost
        if cost is None or cost is before or not cost.was_decode_only:
            return
        drafters = core.arms.drafters
        free_ms = sum(ms for arm, ms in cost.draft_ms.items() if drafters[arm].is_free)
        # What follows the engine's own stop of the clock is the router's learning and counters.
        self.routing_ms += max(cost.look_ms - free_ms, 0.0) + took_ms - cost.total_ms
        self.catch_up_ms += sum(ms for _, ms in cost.catch_up.values())
        self.rounds_ms += took_ms

    @classmethod
    def sum(cls, parts: Iterable[RoundTimes]) -> RoundTimes:
        """All together."""
        total = cls()
        for part in parts:
            total.rounds_ms += part.rounds_ms
            total.routing_ms += part.routing_ms
            total.catch_up_ms += part.catch_up_ms
        return total

    @property
    def routing(self) -> float | None:
        """Share of the rounds' time; None where there was no round."""
        return self.routing_ms / self.rounds_ms if self.rounds_ms else None

    @property
    def catch_up(self) -> float | None:
        """As `routing`."""
        return self.catch_up_ms / self.rounds_ms if self.rounds_ms else None
