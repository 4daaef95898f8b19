"""Learned factors between the survival that drafts claim and what is accepted."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from whiflash.core.rows import RouteRow

MATCH_EDGES_TOKENS = (1, 2, 4, 8, 16, 32)
ENTROPY_EDGES_NATS = (0.1, 0.5, 1.5, 3.0)
RANK_EDGES = (1, 2, 4, 8, 16)
NUM_RANK_BUCKETS = len(RANK_EDGES) + 1
_MAX_FACTOR = 20.0
_UNSEEN = 0

Floats = npt.NDArray[np.float64]
Bucket = tuple[int, int]


def bucket_of(row: RouteRow) -> Bucket:
    """(match-length bucket, entropy bucket) of a row; NaN entropy counts as the highest."""
    return (
        bisect_right(MATCH_EDGES_TOKENS, row.matched),
        bisect_right(ENTROPY_EDGES_NATS, row.signals.entropy),
    )


def rank_buckets(num_ranks: int) -> npt.NDArray[np.intp]:
    """Bucket of ranks 0, 1, ...: int [num_ranks]."""
    return np.searchsorted(RANK_EDGES, np.arange(num_ranks), side="right")


class Cell(NamedTuple):
    """What a factor is learned for."""

    namespace: str
    arm: str
    bucket: Bucket


class FactorTable:
    """Accepted over expected tokens, per cell and rank bucket. A cell is backed by its arm in the
    same namespace, the arm by 1 (what the draft claims); namespaces share nothing.

    window:       observations that a cell remembers.
    prior_tokens: expected tokens that the backing factor counts for.
    fade_rounds:  predictions after which unrefreshed evidence counts half.
    max_step:     share by which one observation may move a factor, up or down.
    """

    def __init__(
        self,
        window: int,
        prior_tokens: float,
        fade_rounds: int,
        max_namespaces: int,
        max_step: float,
    ) -> None:
        self._keep = 1.0 - 1.0 / window
        self._prior_tokens = prior_tokens
        self._fade_rounds = fade_rounds
        self._max_namespaces = max_namespaces
        self._max_step = max_step
        self._round = 0
        # Row 0 stays empty: cells that were never observed read it.
        self._accepted = np.zeros((64, NUM_RANK_BUCKETS))
        self._expected = np.zeros((64, NUM_RANK_BUCKETS))
        self._stamp = np.zeros(64)
        self._free = list(range(63, 0, -1))
        self._spaces: OrderedDict[str, dict[str | tuple[str, Bucket], int]] = OrderedDict()

    @property
    def num_namespaces(self) -> int:
        return len(self._spaces)

    def steady(self, prior_tokens: float, max_step: float) -> None:
        """What is expected was learned from many rounds: from now on it weighs `prior_tokens`, and
        one observation may move a factor less far."""
        self._prior_tokens, self._max_step = prior_tokens, max_step

    def reset(self) -> None:
        """Forgets what was learned, of every namespace."""
        for namespace in list(self._spaces):
            self._drop(namespace)

    def factors(self, cells: Sequence[Cell]) -> Floats:
        """float64 [N, NUM_RANK_BUCKETS]."""
        self._round += len(cells)
        arms, fine = [], []
        for namespace, arm, bucket in cells:
            space = self._spaces.get(namespace)
            if space is None:
                arms.append(_UNSEEN)
                fine.append(_UNSEEN)
            else:
                arms.append(space.get(arm, _UNSEEN))
                fine.append(space.get((arm, bucket), _UNSEEN))
        return self._corrected(fine, self._corrected(arms, np.ones(1)))

    def _corrected(self, rows: list[int], backing: Floats) -> Floats:
        belief = self._prior_tokens
        age = self._round - self._stamp[rows]
        fade = np.exp2(age / -self._fade_rounds)[:, None]
        factor = fade * self._accepted[rows] + belief * backing
        factor /= fade * self._expected[rows] + belief
        return np.minimum(factor, _MAX_FACTOR, out=factor)

    def observe(
        self,
        cells: Sequence[Cell],
        expected: Floats,
        accepted: Floats,
        weights: Floats | None = None,
    ) -> None:
        """One scored draft per cell: tokens per rank bucket that were claimed and accepted,
        float64 [N, NUM_RANK_BUCKETS] both. weights: float64 [N], drafts that each stands for; 1
        where none are given."""
        rows: list[int] = []
        for cell in cells:
            space = self._space(cell.namespace)
            rows.append(self._row(space, cell.arm))
            rows.append(self._row(space, (cell.arm, cell.bucket)))
        weights = np.repeat(np.ones(len(cells)) if weights is None else weights, 2)
        touched, places = np.unique(rows, return_inverse=True)
        times = np.bincount(places, weights)
        fade = np.exp2((self._stamp[touched] - self._round) / self._fade_rounds)
        keep = (fade * self._keep**times)[:, None]
        accepted = weights[:, None] * np.repeat(accepted, 2, axis=0)
        expected = weights[:, None] * np.repeat(expected, 2, axis=0)
        for sums in (self._accepted, self._expected):
            sums[touched] *= keep
        share = self._bounded(rows, accepted, expected)
        np.add.at(self._accepted, rows, share * accepted)
        np.add.at(self._expected, rows, share * expected)
        self._stamp[touched] = self._round

    def forget_arm(self, arm: str) -> None:
        """In all namespaces."""
        for space in self._spaces.values():
            known = [key for key in space if (key if isinstance(key, str) else key[0]) == arm]
            self._clear([space.pop(key) for key in known])

    def _bounded(self, rows: list[int], accepted: Floats, expected: Floats) -> Floats:
        """How much of each observation counts, float64 of its shape, so that (A + a) / (E + e)
        stays within a factor 1 + max_step of A / E, what backs them included."""
        step, belief = self._max_step, self._prior_tokens
        known, claimed = self._accepted[rows] + belief, self._expected[rows] + belief
        # Every arm's row is followed by its bucket's, which it backs.
        known[1::2] += belief * (known[::2] / claimed[::2] - 1.0)
        own, other = accepted / known, expected / claimed
        excess = np.maximum(own - (1.0 + step) * other, other - (1.0 + step) * own)
        weight: Floats = step / np.maximum(excess, step)
        return weight

    def _space(self, namespace: str) -> dict[str | tuple[str, Bucket], int]:
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = {}
            if len(self._spaces) > self._max_namespaces:
                self._drop(next(iter(self._spaces)))
        self._spaces.move_to_end(namespace)
        return space

    def _drop(self, namespace: str) -> None:
        self._clear(list(self._spaces.pop(namespace).values()))

    def _clear(self, rows: list[int]) -> None:
        self._accepted[rows] = 0.0
        self._expected[rows] = 0.0
        self._free.extend(rows)

    def _row(
        self,
        space: dict[str | tuple[str, Bucket], int],
        key: str | tuple[str, Bucket],
    ) -> int:
        row = space.get(key)
        if row is None:
            if not self._free:
                self._grow()
            row = space[key] = self._free.pop()
            self._stamp[row] = self._round
        return row

    def _grow(self) -> None:
        old = len(self._stamp)
        self._accepted = np.concatenate([self._accepted, np.zeros_like(self._accepted)])
        self._expected = np.concatenate([self._expected, np.zeros_like(self._expected)])
        self._stamp = np.concatenate([self._stamp, np.zeros(old)])
        self._free.extend(range(2 * old - 1, old - 1, -1))

    def check_integrity(self) -> None:
        used = [row for space in self._spaces.values() for row in space.values()]
        assert len(self._spaces) <= self._max_namespaces
        assert sorted(used + self._free) == list(range(1, len(self._stamp)))
        assert not self._accepted[_UNSEEN].any()
        assert not self._expected[[_UNSEEN, *self._free]].any()
        assert np.isfinite(self._accepted).all()
        assert (self._accepted >= 0.0).all()
        assert (self._stamp <= self._round).all()
