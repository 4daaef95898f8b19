"""The noise: a function of (key, index, id), uniform and independent in all three."""

import hashlib

import numpy as np
import pytest
from scipy import stats

from whiflash.sampling.noise import (
    BLOCK_IDS,
    derive_key,
    fresh_seed,
    gumbel_of,
    gumbel_row,
    prompt_fingerprint,
)

KEY = derive_key(7, 0, [1, 2, 3])
_M = 2**64 - 1


def _uniforms(noise: np.ndarray) -> np.ndarray:
    """exp(-E) with E = exp(-g) is uniform if g is Gumbel."""
    return np.exp(-np.exp(-noise))


def _naive(lanes: tuple[int, int], token: int) -> float:
    """The definition, in Python integers and the C library's logarithm."""

    def mix(word: int) -> int:
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _M
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _M
        return word ^ (word >> 31)

    def word(counter: int) -> int:
        return mix(mix((lanes[0] + counter * 0x9E3779B97F4A7C15) & _M) ^ lanes[1])

    def exponential(h: int) -> float:
        return -np.log1p(-((h >> 12) + 0.5) * 2.0**-52)

    block = word(2**32 + token // 64)
    least = exponential(block) / 64
    is_least = token % 64 == block % 64
    return -np.log(least + (0.0 if is_least else exponential(word(token))))


def test_definition_is_the_documented_one() -> None:
    lanes = tuple(int(lane) for lane in KEY.lanes(5))
    expected = [_naive(lanes, token) for token in range(300)]
    np.testing.assert_allclose(gumbel_row(KEY, 5, 300), expected, rtol=1e-13, atol=1e-13)


def test_pinned_values() -> None:
    """A change of the noise changes every seeded text: it must be on purpose."""
    digest = hashlib.blake2b(gumbel_row(KEY, 3, 1000).tobytes(), digest_size=8).hexdigest()
    assert digest == "0a1e304ef2cf7cfd"


def test_vocabulary_size_and_order_do_not_enter() -> None:
    row = gumbel_row(KEY, 2, 1000)
    assert np.array_equal(row[:70], gumbel_row(KEY, 2, 70))
    ids = np.random.default_rng(0).permutation(1000)[:200]
    assert np.array_equal(row[ids], gumbel_of(KEY, 2, ids))


def test_key_depends_on_every_part_and_is_not_shown() -> None:
    keys = [
        derive_key(7, 0, [1, 2, 3]),
        derive_key(8, 0, [1, 2, 3]),
        derive_key(2**127, 0, [1, 2, 3]),
        derive_key(7, 1, [1, 2, 3]),
        derive_key(7, 0, [1, 2]),
        derive_key(7, 0, [1, 2, 3], "other"),
    ]
    assert len({key.secret for key in keys}) == len(keys)
    assert keys[0] == KEY
    assert KEY.secret.hex() not in repr(KEY)
    assert str(KEY.secret) not in repr(KEY)
    assert prompt_fingerprint([1, 2]) == prompt_fingerprint((1, 2))


def test_fresh_seeds_fit_and_differ() -> None:
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**128 for seed in seeds)
    assert max(seeds) > 2**100


@pytest.mark.parametrize("which", ["index", "id", "key"])
def test_uniform_in_each_argument(which: str) -> None:
    count = 100_000
    if which == "id":
        noise = gumbel_row(KEY, 0, count)
    elif which == "index":
        noise = np.array([gumbel_of(KEY, i, [9])[0] for i in range(count // 5)])
    else:
        noise = np.array([gumbel_of(derive_key(s, 0, ()), 0, [9])[0] for s in range(count // 5)])
    assert stats.kstest(_uniforms(noise), "uniform").pvalue > 1e-4


def test_least_of_a_block_is_where_and_what_it_should_be() -> None:
    """Within a block: the place of the minimum uniform, 64 times the minimum exponential."""
    blocks = np.exp(-gumbel_row(KEY, 1, 64 * 20_000)).reshape(-1, BLOCK_IDS)
    assert stats.kstest(64 * blocks.min(1), "expon").pvalue > 1e-4
    counts = np.bincount(blocks.argmin(1), minlength=BLOCK_IDS)
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("apart", [1, 31, 64])
def test_independent_across_ids(apart: int) -> None:
    """Also inside a block, where ids share the minimum that was drawn first."""
    uniforms = _uniforms(gumbel_row(KEY, 2, 400_000))
    _assert_independent(uniforms[:-apart], uniforms[apart:])


def test_independent_across_neighbouring_indices_and_keys() -> None:
    rows = [_uniforms(gumbel_row(KEY, index, 200_000)) for index in (0, 1)]
    _assert_independent(*rows)
    other = _uniforms(gumbel_row(derive_key(8, 0, [1, 2, 3]), 0, 200_000))
    _assert_independent(rows[0], other)


def _assert_independent(left: np.ndarray, right: np.ndarray) -> None:
    """Chi-square of the joint counts on an 8 x 8 grid."""
    grid = (np.floor(left * 8) * 8 + np.floor(right * 8)).astype(int)
    assert stats.chisquare(np.bincount(grid, minlength=64)).pvalue > 1e-4
