"""Learned heads: how many of each arm's nodes will be accepted, from what is known at a root."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whiflash.core.rows import RouteRow

NUM_RANKS = 16
"""Ranks with an output of their own; later ones use the last."""
NUM_KNOTS = 16
MAX_CLAIM = 4.0
_MAX_ENTROPY, _MAX_LOGIT = 10.0, 30.0

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class HeadArm:
    """has_claims: its draft is at hand before the choice, and the head reads what it claims.
    max_nodes, tree: of the drafts that it was trained on (core.shape); tree "" where none is
    known."""

    arm: str
    has_claims: bool
    max_nodes: int
    tree: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalHeads:
    """P(node of rank k accepted | node of rank k - 1 accepted) = sigmoid(z), and survival is the
    product of these, so it never rises along ranks. z = out(SiLU(hidden and signals)), for an arm
    whose draft is at hand plus claim * logit of what the draft claims of that step.

    A tree's nodes stand in order of likelihood; for them the steps are ratios of survival.

    Arrays, float32, with h the target's width, w the inner one, s = len(signals), A arms:
    hidden_weight [w, h], hidden_mean [h], signal_weight [w, s], bias [w], out_weight
    [A * NUM_RANKS, w], out_bias [A * NUM_RANKS], claim_weight [A, 2] (first node, later ones),
    claimed and true [A, NUM_KNOTS], both rising: what an arm's drafts claim of their nodes, and the
    share of those that came true. A row without a hidden state counts as one with the mean.
    """

    arms: tuple[HeadArm, ...]
    hidden_weight: Singles
    hidden_mean: Singles
    signal_weight: Singles
    bias: Singles
    out_weight: Singles
    out_bias: Singles
    claim_weight: Singles
    claimed: Singles
    true: Singles

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(arm.arm for arm in self.arms)

    @property
    def hidden_size(self) -> int:
        return len(self.hidden_mean)

    def inputs(self, rows: Sequence[RouteRow]) -> tuple[Singles, Singles]:
        """(hidden states less their mean [R, h], signals [R, s])."""
        states = [row.signals.hidden for row in rows]
        hidden = np.zeros((len(rows), self.hidden_size), np.float32)
        for place, state in enumerate(states):
            if state is not None:
                np.subtract(state, self.hidden_mean, out=hidden[place])
        return hidden, signals_of(rows, self.names)

    def logits(self, hidden: Singles, signals: Singles) -> Singles:
        """float32 [R, A, NUM_RANKS], without claims."""
        inner: Singles = hidden @ self.hidden_weight.T
        inner += signals @ self.signal_weight.T
        inner += self.bias
        np.clip(inner, -_MAX_LOGIT, _MAX_LOGIT, out=inner)
        inner /= 1.0 + np.exp(-inner)
        out: Singles = inner @ self.out_weight.T
        out += self.out_bias
        by_arm: Singles = out.reshape(len(hidden), len(self.arms), NUM_RANKS)
        return by_arm

    def survival(self, logits: Singles, places: npt.NDArray[np.intp], claims: Floats) -> Floats:
        """float64 [N, K], non-increasing. logits: [N, NUM_RANKS] of the arms at `places` [N];
        claims: [N, K], survival by rank as the drafts claim it, read where the arm has claims."""
        width = claims.shape[1]
        ranks = np.minimum(np.arange(width), NUM_RANKS - 1)
        z = logits.astype(np.float64)[:, ranks]
        if self._reads_claims[places].any():
            weights = self.claim_weight[places][:, np.minimum(np.arange(width), 1)]
            z += weights * steps_of(claims)
        odds = 1.0 / (1.0 + np.exp(-np.clip(z, -_MAX_LOGIT, _MAX_LOGIT)))
        np.cumprod(odds, axis=1, out=odds)
        odds[np.arange(width) >= self._max_nodes[places][:, None]] = 0.0
        return odds

    @property
    def _reads_claims(self) -> npt.NDArray[np.bool_]:
        return np.array([arm.has_claims for arm in self.arms])

    @property
    def _max_nodes(self) -> npt.NDArray[np.intp]:
        """A draft that is at hand says itself how long it is."""
        longest = np.iinfo(np.intp).max
        return np.array([longest if a.has_claims else a.max_nodes for a in self.arms], np.intp)

    def calibrated(self, arm: str, claims: Floats) -> Floats:
        """float64 of the same shape: what `claims` of that arm's nodes came to; unchanged for an
        arm without a head."""
        if arm not in self.names:
            return claims
        place = self.names.index(arm)
        true: Floats = np.interp(claims, self.claimed[place], self.true[place])
        return true


def num_signals(num_arms: int) -> int:
    """Length of a row of `signals_of`."""
    return 3 + 2 * num_arms


def signals_of(rows: Sequence[RouteRow], arms: Sequence[str]) -> Singles:
    """float32 [R, num_signals]: entropy, margin, log(1 + matched), then per arm its recent rate and
    whether there is one. What is no number stays none."""
    found = np.zeros((len(rows), num_signals(len(arms))), np.float32)
    for place, row in enumerate(rows):
        signals = row.signals
        cells = [signals.entropy, signals.margin, math.log1p(row.matched)]
        for arm in arms:
            rate = row.recent_rates.get(arm)
            cells += (0.0, 0.0) if rate is None else (rate, 1.0)
        found[place] = cells
    np.minimum(found[:, 0], _MAX_ENTROPY, out=found[:, 0])
    return found


def steps_of(claims: Floats) -> Floats:
    """float64 [N, K]: logit of claimed survival over that of the rank before, within MAX_CLAIM."""
    before = np.ones_like(claims)
    before[:, 1:] = claims[:, :-1]
    ratio = np.clip(claims / np.maximum(before, 1e-9), 1e-6, 1.0 - 1e-6)
    return np.clip(np.log(ratio / (1.0 - ratio)), -MAX_CLAIM, MAX_CLAIM)
