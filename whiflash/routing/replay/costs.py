"""What rounds cost in a replay: the measured curve as the logged steps corrected it, then fixed."""

from __future__ import annotations

from collections.abc import Mapping

from whiflash.core.costs import CostCurve
from whiflash.core.rows import NONE, StepCost
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

    def round_ms(self, arm: str, nodes: int, backlog: int) -> float:
        """A lone row's round that verifies `nodes` of the arm's draft, catch-up included."""
        ms = self.plain_ms(1) + self.verify_ms(1 + nodes) - self.verify_ms(1)
        if arm == NONE:
            return ms
        return ms + self.draft_ms(arm, 1) + self.catch_up_ms(arm, backlog)
