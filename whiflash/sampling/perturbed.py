"""The best ids by z + T * g on one row: what a drafter proposes, and its siblings (design.md 5).

`g` is the noise by which the target will choose, indexed by target id. Blocks that cannot place
an id among the best are skipped, as in `sampling.choose`; the result is that of the full sort.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from whiflash.sampling.arithmetic import log_positive
from whiflash.sampling.choose import block_maxima, score_ceiling
from whiflash.sampling.filters import Filters, total_weight
from whiflash.sampling.noise import (
    BLOCK_IDS,
    FloatRow,
    IdArray,
    NoiseKey,
    block_minimum,
    gumbel_in_block,
    gumbel_of,
)

# Of the best perturbed ids, about top_p of the first few lie in the nucleus.
_ASKED_PER_ID, _MORE_ASKED = 2, 16


@njit(nogil=True)
def _insert(ids: IdArray, scores: FloatRow, count: int, token: int, score: float) -> int:
    """Puts an id into the sorted best (larger score, then lower id), full lists losing the last.
    Returns the new count."""
    place = count
    while place > 0 and (
        score > scores[place - 1] or (score == scores[place - 1] and token < ids[place - 1])
    ):
        place -= 1
    if place == len(ids):
        return count
    for i in range(min(count, len(ids) - 1), place, -1):
        ids[i], scores[i] = ids[i - 1], scores[i - 1]
    ids[place], scores[place] = token, score
    return min(count + 1, len(ids))


@njit(nogil=True, cache=True)
def _best(
    z: FloatRow,
    maxima: FloatRow,
    temperature: float,
    lane_0: np.uint64,
    lane_1: np.uint64,
    ids: IdArray,
    scores: FloatRow,
) -> int:
    bounds = np.empty(len(maxima))
    for block in range(len(maxima)):
        bounds[block] = -np.inf
        if maxima[block] > -np.inf:
            least, _ = block_minimum(lane_0, lane_1, block)
            bounds[block] = score_ceiling(maxima[block], temperature, -log_positive(least))
    count = 0
    for block in np.argsort(-bounds):
        is_full = count == len(ids)
        if bounds[block] == -np.inf or (is_full and bounds[block] < scores[count - 1]):
            break
        least, least_id = block_minimum(lane_0, lane_1, block)
        most_noise = -log_positive(least)
        for token in range(block * BLOCK_IDS, min((block + 1) * BLOCK_IDS, len(z))):
            worst = scores[count - 1] if count == len(ids) else -np.inf
            if z[token] == -np.inf or score_ceiling(z[token], temperature, most_noise) < worst:
                continue
            noise = gumbel_in_block(lane_0, lane_1, token, least, least_id)
            count = _insert(ids, scores, count, token, z[token] + temperature * noise)
    return count


def best_perturbed(
    z: FloatRow, filters: Filters, key: NoiseKey, index: int, num_ids: int
) -> tuple[IdArray, FloatRow]:
    """(ids, scores z + T * g) of the `num_ids` best ids that the filters keep, best first; fewer
    where there are fewer. The first is the id that the target would choose from this row.

    z: float64 [V] by target id, -inf where an id may not come, at least one finite.
    Lowest id on ties. Raises ValueError on NaN or where nothing is finite.
    """
    maxima = block_maxima(z)
    if not np.isfinite(maxima.max()):
        raise ValueError("the row holds NaN, +inf or no finite logit")
    if filters.is_off:
        return _best_of_all(z, maxima, filters.temperature, key, index, num_ids)
    if filters.top_k == 0 and filters.top_p < 1:
        found = _best_of_wide_nucleus(z, maxima, filters, key, index, num_ids)
        if found is not None:
            return found
    kept = filters.kept(z, maxima)
    scores = z[kept] + filters.temperature * gumbel_of(key, index, kept)
    order = np.lexsort((kept, -scores))[:num_ids]
    return kept[order], scores[order]


def _best_of_all(
    z: FloatRow, maxima: FloatRow, temperature: float, key: NoiseKey, index: int, num_ids: int
) -> tuple[IdArray, FloatRow]:
    ids, scores = np.empty(num_ids, np.int64), np.empty(num_ids)
    count = _best(z, maxima, temperature, *key.lanes(index), ids, scores) if num_ids else 0
    return ids[:count], scores[:count]


def _best_of_wide_nucleus(
    z: FloatRow, maxima: FloatRow, filters: Filters, key: NoiseKey, index: int, num_ids: int
) -> tuple[IdArray, FloatRow] | None:
    """The same without ranking the nucleus, which may hold most of the vocabulary: the best of
    all ids, less those that the filters drop. None where too few are left (the nucleus is narrow,
    ranking it is cheap) or rounding leaves it open."""
    asked = _ASKED_PER_ID * num_ids + _MORE_ASKED
    ids, scores = _best_of_all(z, maxima, filters.temperature, key, index, asked)
    total = total_weight(z, maxima, float(maxima.max()), filters.temperature)
    by_rank = np.lexsort((ids, -z[ids]))
    low, high = 0, len(ids)
    while low < high:  # what is kept is a beginning of the ranking
        middle = (low + high) // 2
        is_kept = filters.is_kept(z, maxima, int(ids[by_rank[middle]]), total)
        if is_kept is None:
            return None
        low, high = (middle + 1, high) if is_kept else (low, middle)
    places = np.sort(by_rank[:low])[:num_ids]
    if len(places) < num_ids and len(ids) == asked:
        return None
    return ids[places], scores[places]
