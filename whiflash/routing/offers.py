"""What the rows of a step could draft, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from whiflash.core.rows import NONE, Prediction, RouteRow
from whiflash.routing.costs import Costs, MsArray
from whiflash.routing.survival import Survival

MAX_ARMS = 4


@dataclass(frozen=True, slots=True)
class Offers:
    """The non-`none` arms that rows may take.

    arms:     names, at most MAX_ARMS.
    rows:     int [R], index of the row in the step, for each row with an offer.
    survival: float64 [A, R, K], per arm and row in order of rank, 0 behind the end.
    is_ready: bool [A], the arm's drafts are at hand already, so its cost is sunk.
    backlog:  int [A, R], tokens that the arm must absorb for the row before it can draft.
    """

    arms: tuple[str, ...]
    rows: npt.NDArray[np.intp]
    survival: npt.NDArray[np.float64]
    is_ready: npt.NDArray[np.bool_]
    backlog: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[RouteRow], predictions: Sequence[Prediction]) -> Offers:
        """Raises ValueError for more than MAX_ARMS arms."""
        found: dict[tuple[str, int], Survival] = {}
        paid: set[str] = set()
        for index, (row, prediction) in enumerate(zip(rows, predictions, strict=True)):
            for arm, survival in prediction.survival.items():
                odds = _limited(row, arm, survival)
                if len(odds) and prediction.fixed is None:
                    found[arm, index] = odds
                    if arm not in row.drafts:
                        paid.add(arm)
        return cls._filled(found, paid, [row.backlog for row in rows])

    @classmethod
    def _filled(
        cls,
        found: dict[tuple[str, int], Survival],
        paid: set[str],
        backlogs: Sequence[Mapping[str, int]],
    ) -> Offers:
        arms = tuple(sorted({arm for arm, _ in found}))
        if len(arms) > MAX_ARMS:
            raise ValueError(f"at most {MAX_ARMS} arms can be weighed jointly, got {arms}")
        places = sorted({index for _, index in found})
        place_of = {index: place for place, index in enumerate(places)}
        width = max((len(odds) for odds in found.values()), default=0)
        survival = np.zeros((len(arms), len(places), width))
        for (arm, index), odds in found.items():
            survival[arms.index(arm), place_of[index], : len(odds)] = odds
        np.minimum.accumulate(survival, axis=2, out=survival)
        ready = np.array([arm not in paid for arm in arms], bool)
        lags = [[backlogs[index].get(arm, 0) for index in places] for arm in arms]
        backlog = np.array(lags, np.int64).reshape(len(arms), len(places))
        return cls(arms, np.array(places, np.intp), survival, ready, backlog)

    def without(self, banned: npt.NDArray[np.bool_]) -> Offers:
        """Where banned [A, R] holds, the arm is not on offer."""
        if not banned.any():
            return self
        kept = np.where(banned[:, :, None], 0.0, self.survival)
        return replace(self, survival=kept)

    def catch_up_ms(self, costs: Costs, stays: npt.NDArray[np.float64]) -> MsArray:
        """Float64 [A, R]: what absorbing the backlog costs, spread over the rounds that the row is
        expected to stay with the arm (`stays`, [A, R])."""
        per_token = np.array([costs.catch_up_ms(arm, 1) for arm in self.arms])
        spread: MsArray = per_token[:, None] * self.backlog / stays
        return spread

    def lone_gain(self, costs: Costs, price: float, base_tokens: int) -> npt.NDArray[np.float64]:
        """Float64 [A, R]: tokens gained over `none` if this row alone drafted, at its best budget
        and without the cost of drafting."""
        extra = extra_verify_ms(costs, base_tokens, self.survival.shape[2])
        gain = np.cumsum(self.survival, axis=2) - price * extra[1:]
        best: npt.NDArray[np.float64] = np.maximum(gain.max(axis=2), 0.0)
        return best


def load_of(rows: Sequence[RouteRow]) -> int:
    """Decoding rows of the step that `rows` have a choice in."""
    return max([len(rows), *(row.load for row in rows)])


def extra_verify_ms(costs: Costs, base_tokens: int, nodes: int) -> MsArray:
    """What 0, 1, ... `nodes` draft nodes add to a forward of `base_tokens`: float64 [nodes + 1]."""
    table = costs.verify_table(base_tokens, nodes + 1)
    extra: MsArray = table - table[0]
    return extra


def _limited(row: RouteRow, arm: str, survival: Survival) -> Survival:
    """Nothing for an arm that the row does not have this round; never beyond its limits."""
    if arm == NONE or arm not in row.arms:
        return survival[:0]
    most = row.max_nodes
    if arm in row.drafts:
        most = min(most, len(row.drafts[arm]))
    return survival[:most]
