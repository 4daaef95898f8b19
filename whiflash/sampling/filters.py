"""top-k, top-p and min-p on one row, in this order, deterministic to the last id.

Ids are ranked by (larger z, then lower id). Sums run in a fixed order on one thread, so that the
kept set is a function of the row and the parameters alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from whiflash.core.params import SamplingParams
from whiflash.sampling.arithmetic import exp_non_positive
from whiflash.sampling.choose import block_maxima, choose, choose_among
from whiflash.sampling.noise import BLOCK_IDS, FloatRow, IdArray, NoiseKey

_NEGLIGIBLE = -50.0  # exp(-50) times any vocabulary is below the rounding of a sum of at least 1
_DOUBT = 1e-9  # far above the rounding of a sum of 10^6 weights
_FIRST_BLOCKS = 16  # 16 to 1,024 candidates hold the nucleus of most rows of a language model
_WIDEN = 4


@njit(nogil=True, cache=True)
def total_weight(z: FloatRow, maxima: FloatRow, peak: float, temperature: float) -> float:
    """Sum over ids of exp((z - peak) / temperature), in a fixed order; peak is the largest z."""
    lanes = np.empty(BLOCK_IDS)
    total = 0.0
    for block in range(len(maxima)):
        if (maxima[block] - peak) / temperature < _NEGLIGIBLE:
            continue
        start = block * BLOCK_IDS
        count = min(BLOCK_IDS, len(z) - start)
        for i in range(count):
            lanes[i] = exp_non_positive((z[start + i] - peak) / temperature)
        for i in range(count, BLOCK_IDS):
            lanes[i] = 0.0
        half = BLOCK_IDS // 2
        while half > 0:
            for i in range(half):
                lanes[i] += lanes[i + half]
            half //= 2
        total += lanes[0]
    return total


@njit(nogil=True, cache=True)
def _weights(z: FloatRow, ids: IdArray, peak: float, temperature: float) -> FloatRow:
    out = np.empty(len(ids))
    for i in range(len(ids)):
        out[i] = exp_non_positive((z[ids[i]] - peak) / temperature)
    return out


@njit(nogil=True, cache=True)
def _ids_at_least(z: FloatRow, maxima: FloatRow, threshold: float) -> IdArray:
    """Ascending ids with z >= threshold and z above -inf."""
    num_blocks = 0
    for block in range(len(maxima)):
        if maxima[block] >= threshold:
            num_blocks += 1
    ids = np.empty(num_blocks * BLOCK_IDS, np.int64)
    count = 0
    for block in range(len(maxima)):
        if maxima[block] >= threshold:
            for token in range(block * BLOCK_IDS, min((block + 1) * BLOCK_IDS, len(z))):
                if z[token] >= threshold and z[token] > -np.inf:
                    ids[count] = token
                    count += 1
    return ids[:count]


def ranked_ids(z: FloatRow, maxima: FloatRow, at_least: int) -> IdArray:
    """The most likely ids, ranked: `at_least` of them or more, or all above -inf if fewer.

    What is left out ranks behind all that is returned: `at_least` blocks hold a value that is not
    below the `at_least`-th largest block maximum.
    """
    threshold = -math.inf
    if at_least < len(maxima):
        threshold = float(np.partition(maxima, len(maxima) - at_least)[len(maxima) - at_least])
    ids = _ids_at_least(z, maxima, threshold)
    ranked: IdArray = ids[np.argsort(-z[ids], kind="stable")]
    return ranked


@njit(nogil=True, cache=True)
def _weight_ahead(
    z: FloatRow, maxima: FloatRow, token: int, peak: float, temperature: float
) -> float:
    """Sum of the weights of the ids that rank before `token`."""
    total = 0.0
    for block in range(len(maxima)):
        if maxima[block] >= z[token]:
            for i in range(block * BLOCK_IDS, min((block + 1) * BLOCK_IDS, len(z))):
                if z[i] > z[token] or (z[i] == z[token] and i < token):
                    total += exp_non_positive((z[i] - peak) / temperature)
    return total


@njit(nogil=True, cache=True)
def _drop_from(z: FloatRow, token: int) -> None:
    """Masks `token` and all ids that rank behind it."""
    pivot = z[token]
    for i in range(len(z)):
        if z[i] < pivot or (z[i] == pivot and i >= token):
            z[i] = -np.inf


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of one request. temperature > 0 divides the logits before all of them.

    top_k keeps the k best ranked ids. top_p keeps the shortest ranked prefix whose share of the
    mass *left by top_k* reaches top_p. min_p drops ids less likely than min_p times the best.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float

    @classmethod
    def of(cls, params: SamplingParams) -> Filters:
        return cls(params.temperature, params.top_k, params.top_p, params.min_p)

    @property
    def is_off(self) -> bool:
        """True where nothing is filtered; at temperature 0 no filter can drop the argmax."""
        is_open = self.top_k == 0 and self.top_p >= 1 and self.min_p <= 0
        return is_open or self.temperature == 0

    def choose(self, z: FloatRow, maxima: FloatRow, key: NoiseKey, index: int) -> int:
        """The best of z + T * noise among the kept ids. May overwrite z.

        The best of all ids is the best of the kept ones wherever it is kept, and whether it is
        takes one sum, not a sort. If it is not, neither is any id that ranks behind it.
        """
        if self.top_k > 0 or self.top_p >= 1:
            return choose_among(z, self.kept(z, maxima), self.temperature, key, index)
        peak = float(maxima.max())
        total = total_weight(z, maxima, peak, self.temperature)
        while True:
            token = choose(z, maxima, self.temperature, key, index)
            is_kept = self.is_kept(z, maxima, token, total)
            if is_kept is None:
                ids = self._above_min_p(z, self._nucleus(z, maxima, total), peak)
                return choose_among(z, ids, self.temperature, key, index)
            if is_kept:
                return token
            _drop_from(z, token)
            maxima = block_maxima(z)

    def kept(self, z: FloatRow, maxima: FloatRow) -> IdArray:
        """Ids that may be chosen, never empty.

        z: float64 [V], -inf where masked; maxima: its `block_maxima`, the largest finite.
        """
        peak = float(maxima.max())
        if self.top_k > 0:
            ids = ranked_ids(z, maxima, self.top_k)[: self.top_k]
            if self.top_p < 1:
                weights = _weights(z, ids, peak, self.temperature)
                ids = ids[: self._nucleus_size(weights, float(np.cumsum(weights)[-1]))]
        elif self.top_p < 1:
            ids = self._nucleus(z, maxima, total_weight(z, maxima, peak, self.temperature))
        else:
            ids = _ids_at_least(z, maxima, self._min_p_floor(peak))
        return self._above_min_p(z, ids, peak)

    def _nucleus(self, z: FloatRow, maxima: FloatRow, total: float) -> IdArray:
        peak = float(maxima.max())
        num_blocks = _FIRST_BLOCKS
        while True:
            ids = ranked_ids(z, maxima, num_blocks)
            size = self._nucleus_size(_weights(z, ids, peak, self.temperature), total)
            if size < len(ids) or num_blocks >= len(maxima):
                return ids[:size]
            num_blocks *= _WIDEN

    def _nucleus_size(self, weights: FloatRow, total: float) -> int:
        """Length of the shortest prefix that reaches the mass; all where rounding falls short."""
        reached = int(np.searchsorted(np.cumsum(weights), self.top_p * total, side="left"))
        return min(reached + 1, len(weights))

    def is_kept(self, z: FloatRow, maxima: FloatRow, token: int, total: float) -> bool | None:
        """Whether top_p and min_p keep `token`; None where rounding leaves it open."""
        peak = float(maxima.max())
        if z[token] < self._min_p_floor(peak):
            return False
        distance = _weight_ahead(z, maxima, token, peak, self.temperature) - self.top_p * total
        return None if abs(distance) <= _DOUBT * total else distance < 0

    def _min_p_floor(self, peak: float) -> float:
        return peak + self.temperature * math.log(self.min_p) if self.min_p > 0 else -math.inf

    def _above_min_p(self, z: FloatRow, ids: IdArray, peak: float) -> IdArray:
        return ids[z[ids] >= self._min_p_floor(peak)]
