"""The pruned choice equals the argmax over all noise, to the id."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.sampling.choose import block_maxima, choose, choose_among
from whiflash.sampling.noise import derive_key, gumbel_row

KEY = derive_key(3, 0, [5])


def _full(z: np.ndarray, temperature: float, index: int) -> int:
    return int(np.argmax(z + temperature * gumbel_row(KEY, index, len(z))))


def _pruned(z: np.ndarray, temperature: float, index: int) -> int:
    return choose(z, block_maxima(z), temperature, KEY, index)


def _rows(size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(size)
    normal = rng.normal(size=size)
    peaked = normal.copy()
    peaked[rng.integers(size, size=5)] += 12
    masked = np.where(rng.random(size) < 0.999, -np.inf, normal)
    masked[size // 2] = 0.0
    ramp = np.linspace(-30, 30, size)
    coarse = np.round(normal * 2) / 2
    return {
        "normal": normal,
        "wide": 8 * normal,
        "flat": np.zeros(size),
        "peaked": peaked,
        "masked": masked,
        "ramp": ramp,
        "coarse": coarse,
        "huge": 1e6 + normal,
    }


@pytest.mark.parametrize("size", [49_152, 151_936, 1_000, 65])
@pytest.mark.parametrize("kind", list(_rows(65)))
def test_pruned_equals_full(size: int, kind: str) -> None:
    z = _rows(size)[kind]
    for index in range(6):
        for temperature in (0.1, 0.8, 30.0):
            assert _pruned(z, temperature, index) == _full(z, temperature, index)


def test_winners_outside_the_best_blocks_are_found() -> None:
    """Adversarial: every block's largest z has no luck, the luckiest ids are just below."""
    size, temperature = 20_000, 1.0
    for index in range(20):
        noise = gumbel_row(KEY, index, size)
        z = -noise + np.random.default_rng(index).normal(scale=1e-7, size=size)
        assert _pruned(z, temperature, index) == _full(z, temperature, index)
        assert _pruned(-2 * noise, temperature, index) == _full(-2 * noise, temperature, index)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([-np.inf, -3.0, 0.0, 0.5, 2.0, 700.0]), min_size=1, max_size=200),
    st.sampled_from([1e-3, 0.7, 1.0, 100.0]),
    st.integers(0, 2**40),
)
def test_pruned_equals_full_on_rows_of_few_values(
    values: list[float], temperature: float, index: int
) -> None:
    z = np.array([0.0, *values])
    assert _pruned(z, temperature, index) == _full(z, temperature, index)
    finite = np.flatnonzero(z > -np.inf)
    assert choose_among(z, finite, temperature, KEY, index) == _full(z, temperature, index)


def test_temperature_zero_is_argmax_with_the_lowest_id() -> None:
    z = np.array([0.0, 5.0, 1.0, 5.0] + [5.0] * 200)
    assert _pruned(z, 0.0, 9) == 1
    assert choose_among(z, np.array([150, 3, 1, 0]), 0.0, KEY, 9) == 1


@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 1000])
def test_block_maxima(size: int) -> None:
    z = np.random.default_rng(size).normal(size=size)
    expected = [z[start : start + 64].max() for start in range(0, size, 64)]
    assert block_maxima(z).tolist() == expected
    for place in {0, size // 2, size - 1}:
        bad = z.copy()
        bad[place] = np.nan
        assert np.flatnonzero(np.isnan(block_maxima(bad))).tolist() == [place // 64]
