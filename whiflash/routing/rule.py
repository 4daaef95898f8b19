"""The two modes of a published rule: as it was published, and `rule + trim`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.routing.costs import Costs
from whiflash.routing.policies.goodput import GoodputPolicy

RuleChoice = tuple[str, int]


class RuleMode:
    """Turns what a rule chose into predictions.

    Without trim a choice is fixed: nothing is priced. With trim the rule says which arm; how many
    of its nodes are worth verifying, none included, is left to the joint choice, along survival as
    `goodput` learns it (it sees one arm and `none`).
    """

    def __init__(self, costs: Costs, trim: bool) -> None:
        self._worth = GoodputPolicy(costs) if trim else None

    def name(self, rule: str) -> str:
        """As results name it."""
        return rule if self._worth is None else f"{rule} + trim"

    def predictions(
        self, rows: Sequence[RouteRow], choices: Sequence[RuleChoice]
    ) -> list[Prediction]:
        """One per row, in order; `choices` are (arm, most nodes)."""
        if self._worth is None:
            return [Prediction(fixed=choice) for choice in choices]
        narrowed = [
            replace(row, arms=(NONE,) if arm == NONE else (NONE, arm),
                    max_nodes=min(row.max_nodes, budget))
            for row, (arm, budget) in zip(rows, choices, strict=True)
        ]  # fmt: skip
        return self._worth.predict(narrowed)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """What became of the last predictions."""
        if self._worth is not None:
            self._worth.observe(outcomes)

    def forget_arm(self, arm: str) -> None:
        """Its drafts are made with other weights."""
        if self._worth is not None:
            self._worth.forget_arm(arm, "")

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        if self._worth is not None:
            self._worth.check_integrity()
