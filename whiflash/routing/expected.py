"""What arms' nodes are expected to survive before anything is learned online."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.rows import RouteRow
from whiflash.routing.costs import Costs
from whiflash.routing.factor_table import Cell, Floats
from whiflash.routing.heads import Singles, SurvivalHeads
from whiflash.routing.prior import PriorSurvival
from whiflash.routing.survival import ranked
from whiflash.routing.trust import trusted

logger = logging.getLogger(__name__)
_EMPTY = DraftTree.empty()


class Pair(NamedTuple):
    """A row and an arm that it could draft with, and how many nodes that is at most."""

    place: int
    row: RouteRow
    cell: Cell
    num_nodes: int

    @property
    def is_at_hand(self) -> bool:
        """Whether the arm has drafted already."""
        return self.cell.arm in self.row.drafts


class ExpectedSurvival:
    """By a learned head where there is one; else a draft at hand is believed as far as it can be
    trusted, and an arm that is still to draft does as on held-out texts where that is known, or
    just pays its cost.

    A head whose answer is no number is off for good, named in the log and in `describe`; a row
    whose signals are no numbers is read without heads, and counted.
    """

    def __init__(self, costs: Costs) -> None:
        self._prior = PriorSurvival(costs)
        self._heads: SurvivalHeads | None = None
        self._off: set[str] = set()
        self.num_bad_rows = 0
        self._last: dict[tuple[int, str], tuple[RouteRow, Floats]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """A published state holds no rows: they tell of texts."""
        return self.__dict__ | {"_last": {}}

    @property
    def heads(self) -> SurvivalHeads | None:
        return self._heads

    def take(self, heads: SurvivalHeads) -> None:
        """From now on these are the learned heads."""
        self._heads, self._off = heads, set()

    def leave_out(self, arm: str) -> None:
        """Its head says nothing of the drafts that it makes here."""
        self._off.add(arm)

    def take_found(self, found: Mapping[str, Sequence[float]]) -> None:
        """By arm, survival by rank of its drafts on held-out texts."""
        self._prior.take(found)

    def forget_arm(self, arm: str) -> None:
        """Its drafts are made with other weights: what was learned of it says nothing."""
        self._prior.forget_arm(arm)
        if self._heads is not None and arm in self._heads.names:
            self.leave_out(arm)

    def of(self, pairs: Sequence[Pair]) -> Floats:
        """float64 [N, K]: survival by rank; K is the most nodes of a pair. It is remembered until
        the next call."""
        odds = self._of(pairs)
        kept = odds.copy()
        self._last = {(pair.row.sequence_id, pair.cell.arm): (pair.row, own)
                      for pair, own in zip(pairs, kept, strict=True)}  # fmt: skip
        return odds

    def again(self, pairs: Sequence[Pair]) -> Floats:
        """As `of`, for rows that mostly are those of its last call, with no more nodes."""
        width = max((pair.num_nodes for pair in pairs), default=0)
        odds = np.zeros((len(pairs), width))
        missing: list[int] = []
        for index, pair in enumerate(pairs):
            row, own = self._last.get((pair.row.sequence_id, pair.cell.arm), (None, odds[index]))
            if row is pair.row:
                odds[index, : len(own)] = own[:width]
            else:
                missing.append(index)
        if missing:
            found = self._of([pairs[index] for index in missing])
            odds[missing, : found.shape[1]] = found
        return odds

    def _of(self, pairs: Sequence[Pair]) -> Floats:
        claims = self._claims(pairs)
        odds = claims.copy()
        at_hand = [i for i, pair in enumerate(pairs) if pair.is_at_hand]
        odds[at_hand] = trusted([pairs[i].row for i in at_hand], odds[at_hand])
        for index, pair in enumerate(pairs):
            if not pair.is_at_hand:
                prior = self._prior.of(pair.cell.arm, pair.num_nodes)
                odds[index, : pair.num_nodes] = prior
        if self._heads is not None and len(pairs):
            self._put_learned(self._heads, pairs, claims, odds)
        return odds

    def _claims(self, pairs: Sequence[Pair]) -> Floats:
        """float64 [N, K]: what drafts at hand claim."""
        odds = ranked([pair.row.drafts.get(pair.cell.arm, _EMPTY) for pair in pairs])
        width = max((pair.num_nodes for pair in pairs), default=0)
        if odds.shape[1] < width:
            odds = np.pad(odds, ((0, 0), (0, width - odds.shape[1])))
        return odds[:, :width]

    def _put_learned(
        self, heads: SurvivalHeads, pairs: Sequence[Pair], claims: Floats, odds: Floats
    ) -> None:
        place_of = {arm.arm: place for place, arm in enumerate(heads.arms)}
        asked = [i for i, pair in enumerate(pairs)
                 if self._is_fit(heads, place_of.get(pair.cell.arm), pair)]  # fmt: skip
        if not asked:
            return
        rows = {id(pairs[i].row): pairs[i].row for i in asked}
        number_of = {key: number for number, key in enumerate(rows)}
        numbers = np.array([number_of[id(pairs[i].row)] for i in asked])
        places = np.array([place_of[pairs[i].cell.arm] for i in asked])
        logits, is_sound = self._logits(heads, list(rows.values()))
        usable = is_sound[numbers]
        if self._off:
            usable &= np.array([pairs[i].cell.arm not in self._off for i in asked])
        index = np.array(asked)[usable]
        if len(index):
            chosen = logits[numbers[usable], places[usable]]
            odds[index] = heads.survival(chosen, places[usable], claims[index])

    def _is_fit(self, heads: SurvivalHeads, place: int | None, pair: Pair) -> bool:
        """Whether the arm has a head, and drafts at the time that the head was trained for."""
        if place is None or pair.cell.arm in self._off:
            return False
        return heads.arms[place].has_claims == pair.is_at_hand

    def _logits(
        self, heads: SurvivalHeads, rows: Sequence[RouteRow]
    ) -> tuple[Singles, npt.NDArray[np.bool_]]:
        """Logits of all arms, and which rows can be read."""
        hidden, signals = heads.inputs(rows)
        is_sound = np.isfinite(np.concatenate([hidden, signals], axis=1)).all(axis=1)
        self.num_bad_rows += int((~is_sound).sum())
        hidden[~is_sound], signals[~is_sound] = 0.0, 0.0
        logits = heads.logits(hidden, signals)
        finite = np.isfinite(logits[is_sound]).all(axis=(0, 2))
        for arm in np.array(heads.names)[~finite].tolist():
            if arm not in self._off:
                logger.error("the learned head of arm %s gave no number; it is off", arm)
                self._off.add(arm)
        return logits, np.asarray(is_sound)

    def calibrated(self, arm: str, claims: Floats) -> Floats:
        """What a draft's own survival by rank is worth, once it is there."""
        if self._heads is None or arm in self._off:
            return claims
        return self._heads.calibrated(arm, claims)

    def describe(self) -> dict[str, Any]:
        """JSON-able: arms with a head, heads that are off, rows that could not be read."""
        if self._heads is None:
            return {}
        on = [arm for arm in self._heads.names if arm not in self._off]
        return {"heads": on, "heads_off": sorted(self._off), "bad_rows": self.num_bad_rows}
