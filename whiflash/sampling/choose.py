"""argmax of z + T * g without evaluating all noise: the drafter-invariant rule of design.md 5.

Blocks that cannot win are skipped: a block's best score is at most its largest z plus T times the
noise of its least exponential. The result is that of the full evaluation, bit for bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from whiflash.sampling.arithmetic import log_positive
from whiflash.sampling.noise import (
    BLOCK_IDS,
    FloatRow,
    IdArray,
    NoiseKey,
    block_minimum,
    gumbel_in_block,
)

# A bound is compared with this much room (relative to the magnitudes in it), far above rounding
# and far below any difference that prunes, so that rounding can never prune the winner.
_SLACK = 1e-9


@njit(nogil=True)
def _full_block_max(z: FloatRow, start: int, lanes: FloatRow) -> float:
    """Folds 64 values to one in halves, which vectorises; NaN if there is one."""
    half = BLOCK_IDS // 2
    num_nans = np.int64(0)
    for i in range(half):
        left, right = z[start + i], z[start + half + i]
        num_nans += np.int64(left != left) + np.int64(right != right)
        lanes[i] = max(left, right)
    while half > 1:
        half //= 2
        for i in range(half):
            lanes[i] = max(lanes[i], lanes[i + half])
    return np.nan if num_nans else lanes[0]


@njit(nogil=True, cache=True)
def block_maxima(z: FloatRow) -> FloatRow:
    """float64 [ceil(V / 64)], the largest z of each block (NaN where the block holds a NaN)."""
    num_full = len(z) // BLOCK_IDS
    maxima = np.empty((len(z) + BLOCK_IDS - 1) // BLOCK_IDS)
    lanes = np.empty(BLOCK_IDS)
    for block in range(num_full):
        maxima[block] = _full_block_max(z, block * BLOCK_IDS, lanes)
    if num_full < len(maxima):
        tail = len(z) - num_full * BLOCK_IDS
        for i in range(BLOCK_IDS):
            lanes[i] = z[num_full * BLOCK_IDS + i] if i < tail else -np.inf
        maxima[num_full] = _full_block_max(lanes, 0, lanes)
    return maxima


@njit(nogil=True)
def score_ceiling(z: float, temperature: float, noise: float) -> float:
    """An upper bound, safe against rounding, of any score with this z and at most this noise."""
    return z + temperature * noise + _SLACK * (abs(z) + temperature * abs(noise))


@njit(nogil=True)
def _best_of_block(
    z: FloatRow,
    temperature: float,
    lane_0: np.uint64,
    lane_1: np.uint64,
    block: int,
    best: float,
    best_id: int,
) -> tuple[float, int]:
    least, least_id = block_minimum(lane_0, lane_1, block)
    most_noise = -log_positive(least)
    for token in range(block * BLOCK_IDS, min((block + 1) * BLOCK_IDS, len(z))):
        if z[token] == -np.inf or score_ceiling(z[token], temperature, most_noise) < best:
            continue
        noise = gumbel_in_block(lane_0, lane_1, token, least, least_id)
        score = z[token] + temperature * noise
        if score > best or (score == best and token < best_id):
            best, best_id = score, token
    return best, best_id


@njit(nogil=True, cache=True)
def _choose(
    z: FloatRow, maxima: FloatRow, temperature: float, lane_0: np.uint64, lane_1: np.uint64
) -> int:
    bounds = np.empty(len(maxima))
    first = 0
    for block in range(len(maxima)):
        bounds[block] = -np.inf
        if maxima[block] > -np.inf:
            least, _ = block_minimum(lane_0, lane_1, block)
            bounds[block] = score_ceiling(maxima[block], temperature, -log_positive(least))
            if bounds[block] > bounds[first]:
                first = block
    best, best_id = _best_of_block(z, temperature, lane_0, lane_1, first, -np.inf, len(z))
    for block in range(len(maxima)):
        if bounds[block] >= best and block != first:
            best, best_id = _best_of_block(z, temperature, lane_0, lane_1, block, best, best_id)
    return best_id


@njit(nogil=True, cache=True)
def _choose_among(
    z: FloatRow, ids: IdArray, temperature: float, lane_0: np.uint64, lane_1: np.uint64
) -> int:
    best, best_id = -np.inf, len(z)
    for token in ids:
        least, least_id = block_minimum(lane_0, lane_1, token // BLOCK_IDS)
        noise = gumbel_in_block(lane_0, lane_1, token, least, least_id)
        score = z[token] + temperature * noise
        if score > best or (score == best and token < best_id):
            best, best_id = score, token
    return best_id


def choose(z: FloatRow, maxima: FloatRow, temperature: float, key: NoiseKey, index: int) -> int:
    """The sample of softmax(z / temperature) that `key` fixes for generated token `index`.

    z: float64 [V], -inf where masked, at least one finite; maxima: `block_maxima(z)`.
    Lowest id on ties.
    """
    return int(_choose(z, maxima, temperature, *key.lanes(index)))


def choose_among(z: FloatRow, ids: IdArray, temperature: float, key: NoiseKey, index: int) -> int:
    """As `choose`, where only `ids` (int64, at least one, z finite there) compete."""
    return int(_choose_among(z, ids, temperature, *key.lanes(index)))
