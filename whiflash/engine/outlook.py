"""After a round: which rows' next one is to be looked at for a draft, and signals for these."""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Sequence as Rows

from whiflash.core.signals import SignalNeeds
from whiflash.engine.arms import Arms
from whiflash.engine.drafting import RowDraft
from whiflash.engine.verify import Verdict, VerifyForward
from whiflash.routing.router import Router


class Outlook:
    """Rows that are left out run plain: no signals, no proposals, no choice.

    needs: signals that others than the policy want. spent_ms: what the last call took.
    """

    def __init__(self, arms: Arms, router: Router, needs: SignalNeeds) -> None:
        self._arms = arms
        self._router = router
        self._needs = needs
        self.spent_ms = 0.0

    def take(
        self,
        forward: VerifyForward,
        drafts: Mapping[int, RowDraft],
        verdicts: Rows[Verdict],
        *,
        is_prefilling: bool,
    ) -> None:
        """Sets `is_awake` and `signals` of every sequence that goes on. drafts: the round's rows by
        sequence; is_prefilling: the next forward carries prefill."""
        started = time.perf_counter()
        alive = [
            v for v in verdicts if not v.sequence.is_finished and self._arms.may_draft(v.sequence)
        ]
        self._wake(alive, drafts, is_prefilling)
        needs = self._router.needs | self._needs
        seen = alive if needs.lookback else [v for v in alive if v.sequence.is_awake]
        trees = {number: row.tree for number, row in drafts.items()}
        for verdict, signals in zip(seen, forward.signals(seen, trees, needs), strict=True):
            verdict.sequence.signals = signals
        self.spent_ms = 1e3 * (time.perf_counter() - started)

    def _wake(
        self, alive: Rows[Verdict], drafts: Mapping[int, RowDraft], is_prefilling: bool
    ) -> None:
        """A row whose request names its arm drafts every round."""
        sequences = [verdict.sequence for verdict in alive]
        looks = {s.id: _look(drafts.get(s.id)) for s in sequences if s.request.drafter is None}
        awake = self._router.awake(looks, is_prefilling=is_prefilling)
        for sequence in sequences:
            sequence.is_awake = sequence.id in awake or sequence.id not in looks


def _look(row: RowDraft | None) -> bool | None:
    """Whether looking for a draft brought one; None where nobody looked."""
    return None if row is None or row.route is None else len(row.tree) > 0
