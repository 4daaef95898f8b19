"""The joint choice with dwell: rows do not flap between arms whose worth is about equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whiflash.core.rows import NONE, Choice, Prediction, RouteRow
from whiflash.routing.assign import apply_plan, fixed_choices, plan
from whiflash.routing.costs import Costs
from whiflash.routing.offers import Offers

_FIRST_STAY_ROUNDS = 8.0
_STAY_RATE = 0.05


@dataclass(slots=True)
class _Held:
    arm: str
    rounds: int


class Assigner:
    """`assign` plus, per sequence, the arm it holds.

    For `dwell_rounds` rounds after a change a row may take no other arm that would have to draft
    (that costs a catch-up), and one whose draft is at hand only if its predicted gain beats the
    held arm's by `switch_gain_tokens` (a good find must not wait). `none` is always free to
    take, as leaving costs nothing. A row without an offer keeps what it holds: that nothing was
    found is no decision. (vllm #49548: flips at a batch-size boundary collapsed throughput.)
    """

    def __init__(self, *, dwell_rounds: int = 4, switch_gain_tokens: float = 0.1) -> None:
        self._dwell_rounds = dwell_rounds
        self._switch_gain = switch_gain_tokens
        self._held: dict[int, _Held] = {}
        self._stay_rounds: dict[str, float] = {}

    def choose(
        self,
        rows: Sequence[RouteRow],
        predictions: Sequence[Prediction],
        costs: Costs,
        price: float,
        base_tokens: int,
    ) -> list[Choice]:
        """As `assign`, under dwell."""
        choices = fixed_choices(rows, predictions)
        base = base_tokens + sum(choice.budget for choice in choices)
        offers = Offers.of(rows, predictions)
        if len(offers.rows):
            offers = self._dwelling(offers, rows, costs, price, base)
            catch_up_ms = None
            if offers.backlog.any():
                catch_up_ms = offers.catch_up_ms(costs, self._stays(offers, rows))
            apply_plan(offers, plan(offers, costs, price, base, catch_up_ms), choices)
            self._remember(offers, rows, choices)
        return choices

    def forget(self, sequence_id: int) -> None:
        held = self._held.pop(sequence_id, None)
        if held is not None:
            self._note_stay(held)

    def forget_arm(self, arm: str) -> None:
        """Rows that held it hold nothing."""
        self._stay_rounds.pop(arm, None)
        self._held = {number: held for number, held in self._held.items() if held.arm != arm}

    def _stays(self, offers: Offers, rows: Sequence[RouteRow]) -> npt.NDArray[np.float64]:
        """Float64 [A, R]: rounds that a catch-up serves. The arm a row holds is caught up every
        round, so that backlog is paid at once; another's is spread over the stay that begins."""
        held = [self._held.get(rows[index].sequence_id) for index in offers.rows.tolist()]
        stays = [
            [
                1.0 if h is not None and h.arm == arm
                else self._stay_rounds.get(arm, _FIRST_STAY_ROUNDS)
                for h in held
            ]
            for arm in offers.arms
        ]  # fmt: skip
        return np.array(stays, np.float64)

    def _note_stay(self, held: _Held) -> None:
        if held.arm != NONE:
            known = self._stay_rounds.get(held.arm, _FIRST_STAY_ROUNDS)
            self._stay_rounds[held.arm] = known + _STAY_RATE * (held.rounds + 1 - known)

    def _dwelling(
        self, offers: Offers, rows: Sequence[RouteRow], costs: Costs, price: float, base: int
    ) -> Offers:
        held = [self._held.get(rows[index].sequence_id) for index in offers.rows.tolist()]
        bound = np.array([h is not None and h.rounds < self._dwell_rounds for h in held])
        if not bound.any():
            return offers
        places = np.arange(len(held))
        place_of = {arm: place for place, arm in enumerate(offers.arms)}
        own = np.array([place_of.get(h.arm, -1) if h is not None else -1 for h in held])
        gain = offers.lone_gain(costs, price, base)
        stay = np.where(own >= 0, gain[own, places], 0.0)
        banned = bound & ((gain < stay + self._switch_gain) | ~offers.is_ready[:, None])
        banned[own[own >= 0], places[own >= 0]] = False
        return offers.without(banned)

    def _remember(
        self, offers: Offers, rows: Sequence[RouteRow], choices: Sequence[Choice]
    ) -> None:
        for index in offers.rows.tolist():
            sequence_id, arm = rows[index].sequence_id, choices[index].arm
            held = self._held.get(sequence_id)
            if held is not None and held.arm == arm:
                held.rounds += 1
            elif held is not None or arm != NONE:
                if held is not None:
                    self._note_stay(held)
                self._held[sequence_id] = _Held(arm, 0)

    def check_integrity(self) -> None:
        assert all(h.rounds >= 0 and h.arm for h in self._held.values())
