"""What rounds cost in a replay: the measured curve as the logged steps corrected it, then fixed."""

from __future__ import annotations

from collections.abc import Mapping

from whiflash.core.costs import CostCurve
from whiflash.core.rows import StepCost
from whiflash.routing.costs import CostModel


class ReplayCosts(CostModel):
    """Learns from the log's steps until it is frozen: a replay teaches it nothing."""

    def __init__(self, verify: CostCurve) -> None:
        super().__init__(verify)
        self._is_frozen = False

    def freeze(self) -> None:
        self._is_frozen = True

    def observe(
        self, step: StepCost, rows: int, draft_rows: Mapping[str, int] | None = None
    ) -> None:
        if not self._is_frozen:
            super().observe(step, rows, draft_rows)
