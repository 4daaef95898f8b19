"""Exact acceptance against what the sampler and the drafters' choice really do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.bench.acceptance_laws import classical, point_mass, shared_noise, softmax
from whiflash.sampling.choose import block_maxima, choose
from whiflash.sampling.filters import Filters
from whiflash.sampling.noise import NoiseKey
from whiflash.sampling.perturbed import best_perturbed

_OPEN = Filters(0.8, 0, 1.0, 0.0)
_DRAWS = 20_000


def _logits(seed: int, size: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    target = rng.normal(scale=2.0, size=size)
    return target, target + rng.normal(scale=spread, size=size)


@pytest.mark.parametrize(("seed", "size", "spread"), [(0, 5, 1.0), (1, 100, 0.5), (2, 300, 2.0)])
def test_shared_noise_is_what_target_and_drafter_do(seed: int, size: int, spread: float) -> None:
    """The target's own choice and the drafter's own proposal, on the same key and index."""
    z, drafted = _logits(seed, size, spread)
    key, maxima, temperature = NoiseKey(bytes(16)), block_maxima(z), _OPEN.temperature
    hits = sum(
        choose(z, maxima, temperature, key, index)
        == best_perturbed(drafted.copy(), _OPEN, key, index, 1)[0][0]
        for index in range(_DRAWS)
    )
    share = shared_noise(softmax(z, temperature), softmax(drafted, temperature))
    assert abs(hits / _DRAWS - share) < 4 * np.sqrt(share * (1 - share) / _DRAWS)


def _slow(p: np.ndarray, q: np.ndarray) -> float:
    total = 0.0
    for i in range(len(p)):
        if p[i] > 0 and q[i] > 0:
            total += 1 / sum(max(a / p[i], b / q[i]) for a, b in zip(p, q, strict=True))
    return total


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.booleans())
def test_running_sums_equal_the_double_sum(seed: int, size: int, is_partial: bool) -> None:
    z, drafted = _logits(seed, size, 1.5)
    if is_partial:
        drafted[: size // 2] = -np.inf  # ids that the draft vocabulary lacks
    p, q = softmax(z, 1.0), softmax(drafted, 1.0)
    assert shared_noise(p, q) == pytest.approx(_slow(p, q), abs=1e-12)
    assert shared_noise(p, q) <= classical(p, q) + 1e-12


def test_equal_distributions_are_always_accepted_but_for_an_argmax_draft() -> None:
    p = softmax(_logits(3, 50, 1.0)[0], 1.0)
    assert classical(p, p) == pytest.approx(1.0)
    assert shared_noise(p, p) == pytest.approx(1.0)
    assert point_mass(p, p) == pytest.approx(p.max())


def test_logits_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        softmax(np.array([np.nan, 1.0]), 1.0)
