"""Rows that find nothing worth drafting for a while are looked at less often.

Looking costs time even where nothing is drafted: signals of the root, proposals, the joint choice.
That is little beside one row's forward and much beside one of many rows, where a row's share of
the step is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whiflash.core.rows import StepCost
from whiflash.routing.price import load_bucket
from whiflash.routing.slow_average import SlowRatio

_WINDOW_STEPS = 50
_FIRST_SHARE = 0.05  # of a row's part of a step that looking takes, until measured


@dataclass(slots=True)
class _Row:
    fruitless: int = 0
    rounds_left: int = 0


class Rests:
    """After `patience` looks in a row that ended in no draft, a sequence rests between looks: as
    many rounds as keep looking at `share` of its part of the steps, at most `max_rounds`. The
    first draft wakes it for good."""

    def __init__(self, patience: int = 6, share: float = 0.01, max_rounds: int = 16) -> None:
        self._patience = patience
        self._share = share
        self._max_rounds = max_rounds
        self._rows: dict[int, _Row] = {}
        self._shares: dict[int, SlowRatio] = {}

    def wakes(self, sequence_id: int, has_drafted: bool | None, load: int) -> bool:
        """After each round of a sequence: whether the next one is to be looked at.

        has_drafted: what came of the look at this round, None where there was none; load: rows.
        """
        row = self._rows.setdefault(sequence_id, _Row())
        if has_drafted is None:
            row.rounds_left = max(row.rounds_left - 1, 0)
        elif has_drafted:
            row.fruitless = 0
        else:
            row.fruitless += 1
            if row.fruitless >= self._patience:
                row.rounds_left = self.rest_rounds(load)
        return row.rounds_left == 0

    def rest_rounds(self, load: int) -> int:
        """Rounds between two looks of a resting sequence."""
        wanted = math.ceil(self._share_at(load).value / self._share) - 1
        return min(max(wanted, 0), self._max_rounds)

    def observe(self, step: StepCost, rows: int) -> None:
        """After each step with `rows` decode rows."""
        if step.num_looked and step.was_decode_only and step.total_ms > 0.0:
            own_ms = step.total_ms * step.num_looked / max(rows, step.num_looked)
            self._share_at(rows).add(step.look_ms, own_ms)

    def _share_at(self, load: int) -> SlowRatio:
        return self._shares.setdefault(
            load_bucket(load), SlowRatio(_WINDOW_STEPS, prior=_FIRST_SHARE)
        )

    def forget(self, sequence_id: int) -> None:
        """The sequence ended."""
        self._rows.pop(sequence_id, None)

    def describe(self) -> dict[str, dict[str, float]]:
        """Per load bucket (its largest batch): what looking costs, and the rests that follow."""
        return {
            str(1 << bucket): {
                "look_share": round(share.value, 4),
                "rest_rounds": self.rest_rounds(1 << bucket),
            }
            for bucket, share in sorted(self._shares.items())
        }
