"""Entropy and margin of rows of logits, in one walk over each: what routing looks at every round.

Signals steer who drafts and never enter the text, so speed goes before the last bits here: sums
are float32 and in whatever order the compiler likes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit

Row = npt.NDArray[np.floating]
_LANES = 32
_f: Any = np.float32
# exp(r) for |r| <= ln(2) / 2, minimax, highest power first; ln 2 in two parts for the reduction.
_TERMS = (_f(1.98757e-4), _f(1.398200e-3), _f(8.333452e-3), _f(4.1665796e-2), _f(1.6666667e-1))
_LOG2_E, _LN2_HIGH, _LN2_LOW = _f(1.4426950), _f(0.693359375), _f(-2.12194440e-4)
_LEAST, _HALF, _ONE = _f(-87.0), _f(0.5), _f(1.0)
_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)


@njit(nogil=True, fastmath={"nnan", "nsz", "arcp", "contract", "reassoc"})
def _exp(x: Any) -> Any:
    """exp(x) for _LEAST <= x <= 0, to about 1e-7."""
    steps = np.int32(x * _LOG2_E - _HALF)
    rest = x - _f(steps) * _LN2_HIGH - _f(steps) * _LN2_LOW
    series = _TERMS[0]
    series = series * rest + _TERMS[1]
    series = series * rest + _TERMS[2]
    series = series * rest + _TERMS[3]
    series = series * rest + _TERMS[4]
    series = (series * rest + _HALF) * rest * rest + rest + _ONE
    return series * np.int32((steps + _BIAS) << _MANTISSA_BITS).view(np.float32)


@njit(nogil=True, cache=True)
def _best_two(z: Row) -> tuple[float, float]:
    """The two largest values of a row, by lanes so that it vectorises."""
    first = np.full(_LANES, -np.inf, np.float32)
    second = np.full(_LANES, -np.inf, np.float32)
    whole = len(z) - len(z) % _LANES
    for start in range(0, whole, _LANES):
        for lane in range(_LANES):
            value = _f(z[start + lane])
            second[lane] = max(second[lane], min(first[lane], value))
            first[lane] = max(first[lane], value)
    both = np.empty(2 * _LANES + len(z) - whole, np.float32)
    both[:_LANES] = first
    both[_LANES : 2 * _LANES] = second
    both[2 * _LANES :] = z[whole:]
    both.sort()
    return float(both[-1]), float(both[-2])


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "arcp", "contract", "reassoc"})
def _sums(z: Row, peak: float) -> tuple[float, float]:
    """Sums of e^d and of d * e^d with d = z - peak."""
    total, weighted, top = _f(0.0), _f(0.0), _f(peak)
    for place in range(len(z)):
        distance = max(_f(z[place]) - top, _LEAST)
        weight = _exp(distance)
        total += weight
        weighted += weight * distance
    return float(total), float(weighted)


def entropy_and_margin(logits: torch.Tensor, rows: Sequence[int]) -> list[tuple[float, float]]:
    """Per row of `logits` [R, V] that is asked for: the entropy of its softmax in nats, and by how
    much the likeliest id is likelier than the second. NaN or anything where the row is unsound."""
    if logits.device.type != "cpu":
        return _on_device(logits[list(rows)])
    return [_of_row(_readable(logits[row])) for row in rows]


def _readable(row: torch.Tensor) -> Row:
    """numpy has no bfloat16; only rows that are asked for are converted."""
    found: Row = (row.float() if row.dtype == torch.bfloat16 else row).numpy()
    return found


def _of_row(z: Row) -> tuple[float, float]:
    peak, second = _best_two(z)
    total, weighted = _sums(z, peak)
    if not (math.isfinite(peak) and math.isfinite(total)):
        return math.nan, math.nan
    return math.log(total) - weighted / total, (1.0 - math.exp(second - peak)) / total


def _on_device(logits: torch.Tensor) -> list[tuple[float, float]]:
    log_p = torch.log_softmax(logits.float(), -1)
    entropies = -(log_p.exp() * log_p.clamp_min(-1e4)).sum(-1)
    best = log_p.topk(2, -1).values.exp()
    pairs = torch.stack([entropies, best[:, 0] - best[:, 1]], -1).tolist()
    return [(entropy, margin) for entropy, margin in pairs]


def warm_up() -> None:
    """Compiles the walk, or loads it from numba's cache, so that no round has to."""
    entropy_and_margin(torch.zeros(1, _LANES), [0])
