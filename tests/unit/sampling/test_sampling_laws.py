"""The drafter-invariant rule has exactly the target's distribution (facts: SafeAILab/EAGLE #329,
z-lab/dflash #74): chi-square over 200,000 draws on small vocabularies, whatever the drafts."""

import numpy as np
import pytest
import torch
from numba import njit
from scipy import stats

from whiflash.core.draft import DraftTree
from whiflash.core.params import SamplingParams
from whiflash.sampling.acceptance import walk
from whiflash.sampling.choose import _choose_among, block_maxima
from whiflash.sampling.filters import Filters
from whiflash.sampling.noise import derive_key, gumbel_of
from whiflash.sampling.sampler import SequenceSampler

V, NUM_DRAWS = 6, 200_000
KEY = derive_key(5, 0, [1])
LOGITS = np.array([1.2, 0.3, -0.5, 2.0, -1.0, 0.3])
NEXT_LOGITS = np.random.default_rng(3).normal(size=(V, V))
# Each trial uses two indices of the noise: the first and the second token's.
LANES = np.array([[int(w) for w in KEY.lanes(index)] for index in range(2 * NUM_DRAWS)], np.uint64)


@njit
def _draws(z, ids, temperature, lanes):
    out = np.empty(len(lanes), np.int64)
    for i in range(len(lanes)):
        out[i] = _choose_among(z, ids, temperature, lanes[i, 0], lanes[i, 1])
    return out


def _many(z: np.ndarray, params: SamplingParams, lanes: np.ndarray) -> np.ndarray:
    kept = np.sort(Filters.of(params).kept(z, block_maxima(z)))
    return _draws(z, kept, params.temperature, lanes)


def _law(z: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Exact probabilities, by sorting."""
    order = np.lexsort((np.arange(V), -z))
    p = np.exp((z - z.max()) / params.temperature)
    if params.top_k:
        p[order[params.top_k :]] = 0
    p /= p.sum()
    ahead = np.cumsum(p[order]) - p[order]
    p[order[ahead >= params.top_p]] = 0
    p[z < z.max() + params.temperature * np.log(max(params.min_p, 1e-300))] = 0
    return p / p.sum()


def _assert_law(counts: np.ndarray, p: np.ndarray) -> None:
    assert counts[p == 0].sum() == 0, "an id of probability zero was emitted"
    if (p > 0).sum() > 1:
        expected = counts.sum() * p[p > 0]
        assert stats.chisquare(counts[p > 0], expected).pvalue > 1e-4
        distance = np.abs(counts / counts.sum() - p).sum() / 2
        assert distance < 3 * np.sqrt(V / counts.sum())


ALL_PARAMS = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.5),
    SamplingParams(temperature=1.5),
    SamplingParams(temperature=1.0, top_k=3),
    SamplingParams(temperature=1.0, top_p=0.8),
    SamplingParams(temperature=1.0, min_p=0.2),
    SamplingParams(temperature=0.8, top_k=5, top_p=0.9, min_p=0.1),
]


@pytest.mark.parametrize("params", ALL_PARAMS)
def test_first_token_has_the_target_law(params: SamplingParams) -> None:
    tokens = _many(LOGITS, params, LANES[::2])
    _assert_law(np.bincount(tokens, minlength=V), _law(LOGITS, params))


@pytest.mark.parametrize("params", ALL_PARAMS)
def test_the_sampler_is_what_was_tested(params: SamplingParams) -> None:
    """`SequenceSampler.sample` equals the mass draws above, trial by trial."""
    sampler = SequenceSampler(params, KEY, [1], V, ())
    tokens = _many(LOGITS, params, LANES[::2][:1500])
    row = torch.from_numpy(LOGITS)
    assert [sampler.sample(row, range(2 * i)) for i in range(len(tokens))] == tokens.tolist()


def _proposals(kind: str, first: np.ndarray) -> np.ndarray:
    """One drafted token per trial; `coupled` and `spy` look at the noise of the first token."""
    rng = np.random.default_rng(9)
    p = _law(LOGITS, SamplingParams(temperature=1.0))
    if kind == "q = p":
        return rng.choice(V, NUM_DRAWS, p=p)
    if kind == "uniform":
        return rng.integers(V, size=NUM_DRAWS)
    if kind == "point mass":
        return np.full(NUM_DRAWS, 3)
    if kind == "reduced vocabulary":
        return rng.choice([1, 4], NUM_DRAWS)
    if kind == "disjoint":
        return np.full(NUM_DRAWS, V + 3)
    if kind == "coupled":
        rough = np.round(LOGITS)
        return _many(rough, SamplingParams(temperature=1.0), LANES[::2])
    assert kind == "spy"
    return np.where(rng.random(NUM_DRAWS) < 0.5, first, (first + 1) % V)


KINDS = ["q = p", "uniform", "point mass", "reduced vocabulary", "disjoint", "coupled", "spy"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"top_k": 4, "top_p": 0.9}])
def test_pair_law_holds_after_acceptance_and_after_rejection(
    kind: str, options: dict[str, float]
) -> None:
    params = SamplingParams(temperature=1.0, **options)  # type: ignore[arg-type]
    first = _many(LOGITS, params, LANES[::2])
    accepted = _proposals(kind, first) == first
    second = np.empty_like(first)
    for token in range(V):
        of_token = first == token
        second[of_token] = _many(NEXT_LOGITS[token], params, LANES[1::2][of_token])
    joint = np.bincount(first * V + second, minlength=V * V).reshape(V, V)
    p = _law(LOGITS, params)
    p_next = np.stack([_law(NEXT_LOGITS[token], params) for token in range(V)])
    _assert_law(joint.ravel(), (p[:, None] * p_next).ravel())
    for stratum in (accepted, ~accepted):
        for token in np.unique(first[stratum]):
            counts = np.bincount(second[stratum & (first == token)], minlength=V)
            _assert_law(counts, p_next[token])


@pytest.mark.parametrize("kind", ["q = p", "uniform", "point mass", "reduced vocabulary"])
def test_acceptance_of_independent_drafts_is_the_overlap_p_times_q(kind: str) -> None:
    params = SamplingParams(temperature=1.0)
    first = _many(LOGITS, params, LANES[::2])
    draft = _proposals(kind, first)
    p, q = _law(LOGITS, params), np.bincount(draft, minlength=V) / NUM_DRAWS
    expected = float((p * q).sum())
    deviation = np.sqrt(expected * (1 - expected) / NUM_DRAWS)
    assert abs((draft == first).mean() - expected) < 4 * deviation


def test_coupled_drafts_are_accepted_more_often_than_independent_ones() -> None:
    """Drafters that use the key lift acceptance; with q = p it is certain."""
    params = SamplingParams(temperature=1.0)
    first = _many(LOGITS, params, LANES[::2])
    p, q = _law(LOGITS, params), _law(np.round(LOGITS), params)
    coupled = (_proposals("coupled", first) == first).mean()
    overlap = float(np.minimum(p, q).sum())
    assert float((p * q).sum()) + 0.1 < coupled
    assert coupled <= overlap + 4 / np.sqrt(NUM_DRAWS)
    for index in range(100):
        scores = LOGITS + gumbel_of(KEY, 2 * index, range(V))
        assert int(np.argmax(scores)) == first[index]


@pytest.mark.parametrize("params", ALL_PARAMS[:5:2])
def test_the_walk_emits_the_same_tokens_as_no_draft(params: SamplingParams) -> None:
    """Through `walk` itself: random trees, the sampler with drafted prefixes, 2,000 trials."""
    sampler = SequenceSampler(params, KEY, [1], V, ())
    rng = np.random.default_rng(0)
    depths = []
    for trial in range(2_000):
        size = int(rng.integers(0, 9))
        parents = [int(rng.integers(0, node + 1)) for node in range(size)]
        tree = DraftTree.from_parents(rng.integers(V, size=size).tolist(), parents)

        def choose(row: int, path: tuple[int, ...], tree: DraftTree = tree, t: int = trial) -> int:
            assert tuple(tree.path_tokens(row)) == tuple(path)
            z = LOGITS if not path else NEXT_LOGITS[path[-1]]
            return sampler.sample(torch.from_numpy(z), range(t + len(path)))

        result = walk(tree, choose)  # type: ignore[arg-type]
        plain: list[int] = []
        while len(plain) < len(result.tokens):
            z = LOGITS if not plain else NEXT_LOGITS[plain[-1]]
            plain.append(sampler.sample(torch.from_numpy(z), range(trial + len(plain))))
        assert list(result.tokens) == plain
        depths.append(result.accepted)
    assert {0, 1, 2} <= set(depths)
