"""static: one arm, always.

What it does. Every row that has the arm drafts with it, with the same budget at every load. It
reads no signal, learns nothing and is never trimmed by price: a yardstick for the other policies.

When it is neutral. With arm `none`, or where the row does not have the arm; everywhere else it
pays for its drafts whether or not they are accepted, and loses under load.

Parameters.
    arm: str | None = None      the arm; None takes the row's first arm beside `none`.
    budget: int | None = None   draft nodes per round; None takes all that the row may verify.

Example. `make_policy("static", costs, arm="retrieval", budget=8)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.routing.costs import Costs


class StaticPolicy:
    """The same arm for every row; see the module's docstring."""

    name = "static"

    def __init__(self, costs: Costs, *, arm: str | None = None, budget: int | None = None) -> None:
        del costs
        if budget is not None and budget < 1:
            raise ConfigError(f"policy 'static' needs a budget of at least 1 node, got {budget}")
        self._arm = arm
        self._budget = budget

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        return [Prediction(fixed=self._choice(row)) for row in rows]

    def _choice(self, row: RouteRow) -> tuple[str, int]:
        arm = self._arm or next((a for a in row.arms if a != NONE), NONE)
        if arm == NONE or arm not in row.arms:
            return NONE, 0
        return arm, row.max_nodes if self._budget is None else self._budget

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""
