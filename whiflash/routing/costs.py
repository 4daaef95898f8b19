"""What a step costs on this machine now: the curve measured at load, corrected online."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from whiflash.core.costs import CostCurve
from whiflash.core.rows import NONE, StepCost
from whiflash.routing.linear_cost import LinearCost

MsArray = npt.NDArray[np.float64]
_MAX_SHIFT = math.log(8.0)
_REBUILD_DRIFT = 0.005


class Costs(Protocol):
    """What the economics need to know of costs; `CostModel` is the measured one."""

    def verify_table(self, first: int, count: int) -> MsArray:
        """Milliseconds of a forward of first, first + 1, ... tokens: float64 [count]."""

    def draft_ms(self, arm: str, rows: int) -> float:
        """Milliseconds of one draft call of `arm` for `rows` rows, affine in rows >= 1, with the
        fixed part of the catch-up call before it."""

    def catch_up_ms(self, arm: str, tokens: int) -> float:
        """Milliseconds that absorbing `tokens` adds to a catch-up call of `arm`."""

    def plain_ms(self, rows: int) -> float:
        """Milliseconds of a whole plain step of `rows` decode rows."""


class CostModel:
    """Verify, draft and other costs of a step, from the measured curve and every step since.

    The verify curve is multiplied by exp(shift + residual(tokens)): `shift` follows the whole
    machine (another process, a longer context), the residuals follow single buckets (the points
    of the curve), interpolated between and slowly forgotten, so that a bucket that is not
    visited keeps its shape and moves with the others. Each step moves both by at most a few
    per cent, however slow it was.

    draft: (fixed, per row) milliseconds per arm where known at load. An arm that was never
    measured counts as free, so that it is tried. Its first call is no measure: it loads and
    compiles, and an arm that looked so dear would not be called again. It is known after two.
    Catch-up is fixed plus per token, learned alike; the first one absorbs a whole prompt.
    """

    def __init__(
        self,
        verify: CostCurve,
        draft: Mapping[str, tuple[float, float]] | None = None,
        *,
        rate: float = 0.06,
        max_error: float = 0.25,
    ) -> None:
        self._curve = verify
        self._knots = np.array([count for count, _ in verify.points], np.float64)
        self._residual = np.zeros(len(self._knots))
        self._shift = 0.0
        self._rate = rate
        self._max_error = max_error
        self._drafts = {arm: LinearCost(*cost) for arm, cost in (draft or {}).items()}
        self._catch_ups: dict[str, LinearCost] = {}
        self._other = LinearCost()
        self._base = np.zeros(0)
        self._table = np.zeros(0)
        self._drift = 0.0
        self.num_observed = 0

    def verify_ms(self, tokens: int) -> float:
        return float(self._upto(tokens)[tokens])

    def verify_table(self, first: int, count: int) -> MsArray:
        return self._upto(first + count - 1)[first : first + count]

    def draft_ms(self, arm: str, rows: int) -> float:
        cost, catch_up = self._drafts.get(arm), self._catch_ups.get(arm)
        fixed = catch_up.fixed_ms if catch_up is not None and rows > 0 else 0.0
        return (cost.at(rows) if cost is not None else 0.0) + fixed

    def catch_up_ms(self, arm: str, tokens: int) -> float:
        cost = self._catch_ups.get(arm)
        return cost.per_row_ms * tokens if cost is not None else 0.0

    def other_ms(self, rows: int) -> float:
        """What a step of `rows` decode rows costs beside verify and draft."""
        return self._other.at(rows)

    def plain_ms(self, rows: int) -> float:
        return self.verify_ms(rows) + self.other_ms(rows)

    def round_ms(self, arm: str, nodes: int, backlog: int) -> float:
        """A lone row's round that verifies `nodes` of the arm's draft, catch-up included."""
        ms = self.plain_ms(1) + self.verify_ms(1 + nodes) - self.verify_ms(1)
        if arm == NONE:
            return ms
        return ms + self.draft_ms(arm, 1) + self.catch_up_ms(arm, backlog)

    def observe(
        self, step: StepCost, rows: int, draft_rows: Mapping[str, int] | None = None
    ) -> None:
        """Learn from one step of `rows` decode rows; draft_rows: rows that each arm drafted for."""
        self.num_observed += 1
        if step.tokens > 0 and step.verify_ms > 0.0:
            self._correct_verify(step.tokens, step.verify_ms)
        for arm, ms in step.draft_ms.items():
            self._observe_draft(arm, (draft_rows or {}).get(arm, 0), ms)
        for arm, (tokens, ms) in step.catch_up.items():
            fit = self._catch_ups.setdefault(arm, LinearCost(begins_large=True))
            fit.observe(tokens, ms)
        if step.was_decode_only:
            other = step.total_ms - step.verify_ms - sum(step.draft_ms.values())
            other -= sum(ms for _, ms in step.catch_up.values())
            self._other.observe(rows, max(other, 0.0))

    def _observe_draft(self, arm: str, rows: int, ms: float) -> None:
        if arm in self._drafts:
            self._drafts[arm].observe(rows, ms)
        elif arm != NONE and rows > 0:
            self._drafts[arm] = LinearCost()

    def forget_arm(self, arm: str) -> None:
        """As one that was never measured."""
        self._drafts.pop(arm, None)
        self._catch_ups.pop(arm, None)

    def _correct_verify(self, tokens: int, ms: float) -> None:
        error = math.log(ms / max(self.verify_ms(tokens), 1e-6))
        step = self._rate * max(-self._max_error, min(self._max_error, error))
        self._shift = max(-_MAX_SHIFT, min(_MAX_SHIFT, self._shift + 0.5 * step))
        right = int(np.searchsorted(self._knots, tokens))
        left = max(right - 1, 0)
        right = min(right, len(self._knots) - 1)
        span = self._knots[right] - self._knots[left]
        share = min((tokens - self._knots[left]) / span, 1.0) if span > 0 else 1.0
        self._residual *= 0.999
        self._residual[left] += 0.5 * step * (1.0 - share)
        self._residual[right] += 0.5 * step * share
        self._drift += abs(step)

    def _upto(self, tokens: int) -> MsArray:
        table = self._table
        if tokens >= len(table) or self._drift > _REBUILD_DRIFT:
            table = self._rebuilt(max(tokens + 1, len(self._base), 64))
        return table

    def _rebuilt(self, size: int) -> MsArray:
        """Works on arrays of its own: plan and metrics ask from other threads meanwhile."""
        base = self._base
        if size > len(base):
            size = max(size, 2 * len(base))
            base = np.array([self._curve.at(count) for count in range(size)])
        counts = np.arange(len(base), dtype=np.float64)
        factor = np.exp(self._shift + np.interp(counts, self._knots, self._residual))
        # Fewer tokens can always be padded to more, so a dip in the curve is noise.
        table = np.maximum.accumulate(base * factor)
        self._base, self._table, self._drift = base, table, 0.0
        return table

    def describe(self) -> dict[str, Any]:
        """The costs as they stand, for the plan and for export."""
        return {
            "verify_ms": {int(k): round(self.verify_ms(int(k)), 3) for k in self._knots},
            "verify_at_load_ms": {c: round(ms, 3) for c, ms in self._curve.points},
            "draft_ms": {arm: fit.describe() for arm, fit in sorted(self._drafts.items())},
            "catch_up_ms": {arm: fit.describe() for arm, fit in sorted(self._catch_ups.items())},
            "other_ms": self._other.describe(),
            "observed": self.num_observed,
        }

    def check_integrity(self) -> None:
        table = self._upto(64)
        assert np.all(np.isfinite(table)), "verify cost is not finite"
        assert np.all(np.diff(table) >= 0.0), "verify cost falls with tokens"
        assert all(f.fixed_ms >= -1e-9 and f.per_row_ms >= 0 for f in self._drafts.values())
