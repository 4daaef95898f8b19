"""From a drafter's logits to candidates: the same temperature, filters and noise as the target.

Noise belongs to (row of the batch, depth) and is indexed by *target* id, so that a drafter that
thinks like the target proposes what the target will choose (design.md 5).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from whiflash.core.params import SamplingParams
from whiflash.core.rows import DraftSampling
from whiflash.drafters.trees.ddtree import Candidates, WeightTable
from whiflash.models.draft.vocabulary import DraftVocabulary
from whiflash.sampling.filters import Filters
from whiflash.sampling.noise import NoiseKey
from whiflash.sampling.perturbed import best_perturbed

# Perturbed scores are normalised over this many of the best at least: what is left out weighs
# little, and the survival table learns from outcomes what a confidence is worth.
_NORMALISED_IDS = 16


def best_candidates(
    logits: torch.Tensor,
    vocabulary: DraftVocabulary,
    num_ids: int,
    sampling: DraftSampling | None,
    depths: Sequence[int],
) -> Candidates:
    """The `num_ids` best ids of each row, as target ids, with log-confidences.

    logits: [n, draft vocabulary]; depths: the depth below the root of each row's candidates.
    Without sampling the confidence is the softmax (over the draft vocabulary, temperature 1); with
    it, the softmax of z / T + g over the best kept ids. A row with NaN has no candidates.
    """
    num_ids = min(num_ids, len(vocabulary))
    if sampling is None:
        return _greedy(logits, vocabulary, num_ids)
    tokens = np.zeros((len(logits), num_ids), np.int32)
    weights = np.full((len(logits), num_ids), -np.inf)
    z = np.full(vocabulary.target_size, -np.inf)
    for row, values in enumerate(logits.detach().cpu().double().numpy()):
        z[vocabulary.target_ids] = values
        index = sampling.index + depths[row] - 1
        if np.isfinite(values.max()):
            _perturb(z.copy(), sampling, index, tokens[row], weights[row])
    return Candidates(tokens, weights)


def _greedy(logits: torch.Tensor, vocabulary: DraftVocabulary, num_ids: int) -> Candidates:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    best = torch.log_softmax(wide, dim=-1).topk(num_ids, dim=-1)
    weights: WeightTable = best.values.double().cpu().numpy()
    tokens = vocabulary.target_ids[best.indices.cpu().numpy()].astype(np.int32)
    is_broken = np.isnan(weights).any(axis=1)
    weights[is_broken] = -np.inf
    return Candidates(tokens, weights)


def _perturb(
    z: np.ndarray[tuple[int], np.dtype[np.float64]],
    sampling: DraftSampling,
    index: int,
    tokens: np.ndarray[tuple[int], np.dtype[np.int32]],
    weights: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    """Fills a row of both tables."""
    key = NoiseKey(sampling.key)
    wanted = max(len(tokens), _NORMALISED_IDS)
    ids, scores = best_perturbed(z, filters_of(sampling), key, index, wanted)
    scaled = (scores - scores[0]) / sampling.temperature
    log_odds = scaled - np.log(np.exp(scaled).sum())
    count = min(len(tokens), len(ids))
    tokens[:count], weights[:count] = ids[:count], np.minimum(log_odds[:count], 0.0)


def filters_of(sampling: DraftSampling) -> Filters:
    """The filters that the target applies to the row."""
    return Filters(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)


def draft_sampling(params: SamplingParams, key: NoiseKey, index: int) -> DraftSampling | None:
    """What an engine tells drafters of a row whose next token is generated token `index`."""
    if params.temperature == 0:
        return None
    return DraftSampling(
        params.temperature, params.top_k, params.top_p, params.min_p, key.secret, index
    )
