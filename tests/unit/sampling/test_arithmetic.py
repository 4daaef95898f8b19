"""The portable logarithm and exponential against extended precision."""

import numpy as np
from numba import njit

from whiflash.sampling.arithmetic import exp_non_positive, log_positive

_EPS = float(np.finfo(np.float64).eps)


@njit
def _logs(values):
    out = np.empty(len(values))
    for i in range(len(values)):
        out[i] = log_positive(values[i])
    return out


@njit
def _exps(values):
    out = np.empty(len(values))
    for i in range(len(values)):
        out[i] = exp_non_positive(values[i])
    return out


def test_log_is_accurate_over_all_arguments_of_the_noise() -> None:
    rng = np.random.default_rng(0)
    near_one = 1 - 2.0 ** -rng.uniform(1, 53, 50_000)
    values = np.concatenate([rng.random(50_000), near_one, 2.0 ** rng.uniform(-80, 10, 50_000)])
    values = values[(values > 0) & (values != 1)]
    exact = np.log(values.astype(np.longdouble))
    assert np.max(np.abs((_logs(values) - exact) / exact)) < 4 * _EPS


def test_log_of_the_extreme_uniforms() -> None:
    least, most = 2.0**-53, 1 - 2.0**-53
    logs = _logs(np.array([least, most, 1.0]))
    assert logs[0] == -53 * np.log(2)
    assert -logs[1] == np.float64(-np.log1p(-(2.0**-53)))
    assert logs[2] == 0.0


def test_exp_is_accurate_and_ends_at_zero() -> None:
    rng = np.random.default_rng(0)
    values = -np.concatenate([rng.exponential(1, 50_000), rng.uniform(0, 699, 50_000)])
    exact = np.exp(values.astype(np.longdouble))
    assert np.max(np.abs((_exps(values) - exact) / exact)) < 4 * _EPS
    assert _exps(np.array([0.0, -701.0, -np.inf])).tolist() == [1.0, 0.0, 0.0]


def test_place_in_the_array_does_not_matter() -> None:
    """Vector bodies and remainders of a loop must agree to the last bit."""
    values = -np.random.default_rng(0).exponential(5, 101)
    for function, arguments in ((_exps, values), (_logs, -values)):
        whole = function(arguments)
        alone = [function(arguments[i : i + 1])[0] for i in range(len(arguments))]
        assert whole.tolist() == alone
