"""top-k, top-p and min-p against the plain definition, ties and boundaries included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.sampling.choose import block_maxima, choose_among
from whiflash.sampling.filters import Filters, ranked_ids
from whiflash.sampling.noise import derive_key

KEY = derive_key(11, 0, [5])


def naive_kept(z: np.ndarray, filters: Filters) -> set[int]:
    """Sort everything, then cut."""
    order = np.lexsort((np.arange(len(z)), -z))[: np.count_nonzero(z > -np.inf)]
    if filters.top_k:
        order = order[: filters.top_k]
    weights = np.exp((z[order] - z[order[0]]) / filters.temperature)
    ahead = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
    if filters.top_p < 1:
        order = order[ahead < filters.top_p * weights.sum()]
    if filters.min_p > 0:
        floor = z[order[0]] + filters.temperature * np.log(filters.min_p)
        order = order[z[order] >= floor]
    return set(order.tolist())


def _kept(z: np.ndarray, filters: Filters) -> set[int]:
    ids = filters.kept(z, block_maxima(z))
    assert len(set(ids.tolist())) == len(ids)
    return set(ids.tolist())


_TOP_P = st.sampled_from([1.0, 0.999, 0.95, 0.6180339, 0.1, 1e-6])
_FILTERS = st.builds(
    Filters,
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 7, 64, 1000]),
    top_p=_TOP_P,
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)


@settings(max_examples=300, deadline=None)
@given(_FILTERS, st.integers(1, 400), st.integers(0, 2**32), st.booleans())
def test_kept_set_is_the_naive_one(filters: Filters, size: int, seed: int, is_coarse: bool) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=size) * 2
    if is_coarse:
        z = np.round(z)
    z[rng.random(size) < 0.2] = -np.inf
    z[rng.integers(size)] = 1.0
    assert _kept(z, filters) == naive_kept(z, filters)


@settings(max_examples=300, deadline=None)
@given(_FILTERS, st.integers(1, 3000), st.integers(0, 2**32), st.booleans())
def test_choice_without_sorting_is_the_choice_among_the_kept(
    filters: Filters, size: int, seed: int, is_coarse: bool
) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=size) * rng.choice([0.1, 1, 5])
    if is_coarse:
        z = np.round(z)
    kept = filters.kept(z, block_maxima(z))
    expected = choose_among(z, kept, filters.temperature, KEY, seed)
    assert filters.choose(z.copy(), block_maxima(z), KEY, seed) == expected


@pytest.mark.parametrize("size", [49_152, 151_936])
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_large_vocabularies(size: int, spread: float) -> None:
    z = np.random.default_rng(size).normal(size=size) * spread
    for filters in (Filters(0.8, 0, 0.95, 0.0), Filters(1.0, 0, 0.3, 0.02), Filters(1, 50, 0.9, 0)):
        kept = filters.kept(z, block_maxima(z))
        assert set(kept.tolist()) == naive_kept(z, filters)
        for index in range(5):
            expected = choose_among(z, kept, filters.temperature, KEY, index)
            assert filters.choose(z.copy(), block_maxima(z), KEY, index) == expected


def test_a_mass_exactly_at_the_boundary_falls_back_to_the_exact_test() -> None:
    """Four equal ids, top_p 0.5: exactly two are kept, by lowest id."""
    z = np.zeros(4)
    filters = Filters(1.0, 0, 0.5, 0.0)
    assert _kept(z, filters) == {0, 1}
    chosen = {filters.choose(z.copy(), block_maxima(z), KEY, index) for index in range(200)}
    assert chosen == {0, 1}


@pytest.mark.parametrize("count", [1, 5, 64, 100, 10_000])
def test_ranked_ids_break_ties_by_id(count: int) -> None:
    z = np.round(np.random.default_rng(1).normal(size=5_000))
    ranked = ranked_ids(z, block_maxima(z), count)
    order = np.lexsort((np.arange(len(z)), -z))
    assert len(ranked) >= min(count, len(z))
    assert np.array_equal(ranked, order[: len(ranked)])


def test_filters_are_off_where_they_cannot_matter() -> None:
    assert Filters(1.0, 0, 1.0, 0.0).is_off
    assert Filters(0.0, 5, 0.5, 0.5).is_off
    assert not Filters(1.0, 5, 1.0, 0.0).is_off
    assert not Filters(1.0, 0, 0.99, 0.0).is_off
    assert not Filters(1.0, 0, 1.0, 0.01).is_off
