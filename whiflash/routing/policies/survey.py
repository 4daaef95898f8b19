"""survey: every arm proposes at every root and nothing is verified, for a log to replay.

What it does. Decodes plainly, so that every position of the text becomes a root, and asks for the
proposal of every arm at each of them. The text scores the proposals; with a round log
(`round_log` in the configuration) `whiflash replay rounds` can then follow any policy along the
text. `whiflash calibrate entropy` uses it.

When it is neutral. Never: it is slower than plain decoding by the time of all drafters.

Parameters. None.

Example. `make_policy("survey", costs)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.routing.costs import Costs


class SurveyPolicy:
    """All draft, none is verified; see the module's docstring."""

    name = "survey"
    drafts_all = True

    def __init__(self, costs: Costs) -> None:
        del costs

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        return [Prediction(fixed=(NONE, 0))] * len(rows)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""
