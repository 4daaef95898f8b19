"""What claimed probabilities came to: a rising curve through the data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whiflash.routing.heads import NUM_KNOTS

Floats = npt.NDArray[np.float64]
_PRIOR_NODES = 16.0
_APART = 1e-4


def rising_curve(claimed: Floats, hits: Floats) -> tuple[Floats, Floats]:
    """(claimed, true), float64 [NUM_KNOTS] both, rising: mean claim of equally large groups of
    nodes, and the share of each group that came true, pooled where it would fall. The claim itself
    weighs as much as `_PRIOR_NODES` nodes; without any node the curve is the claim.

    claimed: float64 [n] in (0, 1]; hits: [n] of 0 and 1.
    """
    if not len(claimed):
        knots = np.linspace(0.0, 1.0, NUM_KNOTS)
        return knots, knots.copy()
    order = np.argsort(claimed, kind="stable")
    groups = [g for g in np.array_split(order, NUM_KNOTS - 2) if len(g)]
    knots = np.array([claimed[group].mean() for group in groups])
    sizes = np.array([float(len(group)) for group in groups])
    shares = np.array([hits[group].mean() for group in groups])
    shares = (shares * sizes + knots * _PRIOR_NODES) / (sizes + _PRIOR_NODES)
    true = pooled(shares, sizes)
    missing = NUM_KNOTS - 1 - len(knots)
    ends = np.array([max(1.0, knots[-1])] * missing)
    knots, true = np.append(knots, ends), np.append(true, [true[-1]] * missing)
    knots, true = np.append(0.0, knots), np.append(0.0, true)
    # Knots of equal claims are told apart, or the curve would have two values there.
    return np.maximum.accumulate(knots + _APART * np.arange(NUM_KNOTS)), true


def pooled(values: Floats, weights: Floats) -> Floats:
    """The closest rising sequence by weighted squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, count = value, weight, 1
        while pools and pools[-1][0] >= mean:
            before, before_weight, before_count = pools.pop()
            mean = (mean * total + before * before_weight) / (total + before_weight)
            total, count = total + before_weight, count + before_count
        pools.append((mean, total, count))
    return np.concatenate([np.full(count, mean) for mean, _, count in pools])
