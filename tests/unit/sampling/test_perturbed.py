"""The best perturbed ids against a full sort, and against the target's own choice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.params import SamplingParams
from whiflash.sampling.choose import block_maxima, choose
from whiflash.sampling.filters import Filters
from whiflash.sampling.noise import NoiseKey, gumbel_row
from whiflash.sampling.perturbed import best_perturbed

OPEN = Filters(1.0, 0, 1.0, 0.0)


def full_sort(z: np.ndarray, temperature: float, key: NoiseKey, index: int) -> np.ndarray:
    scores = z + temperature * gumbel_row(key, index, len(z))
    order = np.lexsort((np.arange(len(z)), -scores))
    return order[z[order] > -np.inf]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    vocab_size=st.integers(1, 400),
    spread=st.sampled_from([0.0, 0.5, 4.0, 30.0]),
    temperature=st.sampled_from([0.05, 0.7, 1.0, 2.5]),
    num_ids=st.integers(0, 80),
)
def test_it_is_the_head_of_the_full_sort(
    seed: int, vocab_size: int, spread: float, temperature: float, num_ids: int
) -> None:
    draw = np.random.default_rng(seed)
    z = draw.normal(0, spread, vocab_size)
    z[draw.random(vocab_size) < 0.3] = -np.inf
    z[draw.integers(vocab_size)] = 0.0
    key = NoiseKey(draw.bytes(16))
    ids, scores = best_perturbed(z, Filters(temperature, 0, 1.0, 0.0), key, 5, num_ids)
    assert ids.tolist() == full_sort(z, temperature, key, 5)[:num_ids].tolist()
    assert (np.diff(scores) <= 0).all()


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    top_k=st.sampled_from([0, 1, 5]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1]),
)
def test_the_first_is_what_the_target_would_choose(
    seed: int, top_k: int, top_p: float, min_p: float
) -> None:
    draw = np.random.default_rng(seed)
    z = draw.normal(0, 3, 200)
    key = NoiseKey(draw.bytes(16))
    filters = Filters.of(SamplingParams(temperature=0.8, top_k=top_k, top_p=top_p, min_p=min_p))
    ids, _ = best_perturbed(z.copy(), filters, key, 3, 6)
    maxima = block_maxima(z)
    if filters.is_off:
        assert ids[0] == choose(z, maxima, 0.8, key, 3)
    else:
        assert ids[0] == filters.choose(z.copy(), maxima, key, 3)
        assert set(ids.tolist()) <= set(filters.kept(z, maxima).tolist())


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 0.5, 3.0, 20.0]),
    top_p=st.sampled_from([0.05, 0.5, 0.95, 0.9999]),
    min_p=st.sampled_from([0.0, 0.05]),
    num_ids=st.integers(0, 40),
)
def test_a_nucleus_of_any_width_gives_its_own_best(
    seed: int, spread: float, top_p: float, min_p: float, num_ids: int
) -> None:
    draw = np.random.default_rng(seed)
    z, key = draw.normal(0, spread, 500), NoiseKey(draw.bytes(16))
    filters = Filters(0.9, 0, top_p, min_p)
    kept = set(filters.kept(z, block_maxima(z)).tolist())
    expected = [i for i in full_sort(z, 0.9, key, 4).tolist() if i in kept][:num_ids]
    ids, scores = best_perturbed(z, filters, key, 4, num_ids)
    assert ids.tolist() == expected
    assert np.array_equal(scores, z[ids] + 0.9 * gumbel_row(key, 4, 500)[ids])


def test_filters_leave_only_what_they_keep() -> None:
    z = np.arange(100.0)
    ids, _ = best_perturbed(z, Filters(1.0, 3, 1.0, 0.0), NoiseKey(bytes(16)), 0, 10)
    assert sorted(ids.tolist()) == [97, 98, 99]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_without_a_finite_best_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        best_perturbed(np.full(70, bad), OPEN, NoiseKey(bytes(16)), 0, 4)
