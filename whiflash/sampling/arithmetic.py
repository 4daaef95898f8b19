"""Logarithm and exponential from plain IEEE operations, for numba kernels.

The text of a seed must not depend on the C library, its vector variants or the place of an id in
a vector loop. These functions use add, multiply, divide and bit moves only, so that a result is a
function of the argument alone on every machine, and the compiler can vectorise them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_LN2 = 0.6931471805599453
_LN2_HIGH = 6.93147180369123816490e-01  # ln 2 with its low 21 bits cleared: exact times |k| < 2^20
_LN2_LOW = 1.90821492927058770002e-10
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD  # of sqrt(1/2)
_ONE_BITS = 0x3FF0000000000000
_MANTISSA = 0xFFFFFFFFFFFFF
_UNDERFLOW = -700.0


@njit(nogil=True)
def log_positive(x: float) -> float:
    """Natural logarithm of a positive normal float64, within 4 units in the last place.

    x = 2^k * m with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh((m - 1) / (m + 1)) by its series,
    whose argument is below 0.172, so that twelve terms reach float64.
    """
    shifted = np.float64(x).view(np.int64) + np.int64(_ONE_BITS - _ROOT_HALF_BITS)
    exponent = np.float64((shifted >> np.int64(52)) - np.int64(1023))
    mantissa_bits = (shifted & np.int64(_MANTISSA)) + np.int64(_ROOT_HALF_BITS)
    mantissa = np.int64(mantissa_bits).view(np.float64)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square = ratio * ratio
    series = 1.0 / 23.0
    series = series * square + 1.0 / 21.0
    series = series * square + 1.0 / 19.0
    series = series * square + 1.0 / 17.0
    series = series * square + 1.0 / 15.0
    series = series * square + 1.0 / 13.0
    series = series * square + 1.0 / 11.0
    series = series * square + 1.0 / 9.0
    series = series * square + 1.0 / 7.0
    series = series * square + 1.0 / 5.0
    series = series * square + 1.0 / 3.0
    series = series * square + 1.0
    return exponent * _LN2 + 2.0 * ratio * series


@njit(nogil=True)
def exp_non_positive(x: float) -> float:
    """exp(x) for x <= 0 within 4 units in the last place; 0 below -700.

    x = k ln 2 + r with |r| <= ln(2) / 2, exp(r) by its Taylor series of degree 13.
    """
    is_tiny = x < _UNDERFLOW
    clipped = _UNDERFLOW if is_tiny else x
    steps = np.int64(clipped / _LN2 - 0.5)
    count = np.float64(steps)
    rest = (clipped - count * _LN2_HIGH) - count * _LN2_LOW
    series = 1.0 / 6227020800.0
    series = series * rest + 1.0 / 479001600.0
    series = series * rest + 1.0 / 39916800.0
    series = series * rest + 1.0 / 3628800.0
    series = series * rest + 1.0 / 362880.0
    series = series * rest + 1.0 / 40320.0
    series = series * rest + 1.0 / 5040.0
    series = series * rest + 1.0 / 720.0
    series = series * rest + 1.0 / 120.0
    series = series * rest + 1.0 / 24.0
    series = series * rest + 1.0 / 6.0
    series = series * rest + 0.5
    series = series * rest + 1.0
    series = series * rest + 1.0
    scale = np.int64((steps + np.int64(1023)) << np.int64(52)).view(np.float64)
    return 0.0 if is_tiny else series * scale
