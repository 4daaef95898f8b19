"""How long a forward waits for drafts that are made elsewhere (design.md 4).

If all that is expected is here it goes; else it waits at most one fixed verify cost, and only for
what is predicted to arrive within it. What is late is dropped: its rows go without a draft."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whiflash.core.draft import DraftTree
from whiflash.engine.guard import GuardedDrafter


@dataclass(slots=True)
class Awaited:
    """One round that was asked of a drafter elsewhere. waited_ms: what it cost this step, or will
    cost whoever waits for it."""

    drafter: GuardedDrafter
    round_id: int
    asked_s: float = field(default_factory=time.perf_counter)
    trees: list[DraftTree] | None = None
    waited_ms: float = 0.0

    @property
    def expected_s(self) -> float:
        """When it is predicted to arrive."""
        return self.asked_s + 1e-3 * self.drafter.expected_ms


FIRST_PATIENCE, MAX_PATIENCE = 4, 64
"""Rounds in a row that are predicted to be late, after which one is waited for all the same: a
round that nobody waits for runs beside the forward, may share its cores, and is no measure. Twice
as many each time that it was late indeed."""


@dataclass(slots=True)
class _Passed:
    """rounds: predicted to be late, in a row."""

    rounds: int = 0
    patience: int = FIRST_PATIENCE


class Hold:
    """hold_ms: the most that a step waits for drafts. num_late: rounds that nobody waited for."""

    def __init__(self, hold_ms: Callable[[], float]) -> None:
        self._hold_ms = hold_ms
        self._passed: dict[str, _Passed] = {}
        self.num_late = 0

    def collect(self, awaited: Sequence[Awaited]) -> None:
        """Fills in what came. Returns at once when nothing more is expected in time."""
        end_s = time.perf_counter() + 1e-3 * self._hold_ms()
        for one in sorted(awaited, key=lambda one: one.expected_s):
            is_waited_for = self._is_waited_for(one, end_s)
            wait_s = max(end_s - time.perf_counter(), 0.0) if is_waited_for else 0.0
            one.trees = one.drafter.poll(one.round_id, wait_s)
            one.waited_ms = 1e3 * (time.perf_counter() - one.asked_s)
            if one.trees is None:
                self.num_late += 1
                one.drafter.drop(one.round_id)
                one.waited_ms = max(one.waited_ms, one.drafter.expected_ms)

    def _is_waited_for(self, one: Awaited, end_s: float) -> bool:
        passed = self._passed.setdefault(one.drafter.name, _Passed())
        if one.expected_s <= end_s:
            passed.rounds, passed.patience = 0, FIRST_PATIENCE
            return True
        passed.rounds += 1
        if passed.rounds <= passed.patience:
            return False
        passed.rounds, passed.patience = 0, min(2 * passed.patience, MAX_PATIENCE)
        return True
