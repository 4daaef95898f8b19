"""How far a retrieved draft's own survival can be trusted, before anything is learned here.

Short matches at roots where the target wavers seldom come true, whatever the index claims; long
ones nearly always do. Measured on SmolLM2-135M's own answers (chat, code, maths, JSON, edits, tool
loops; greedy and temperature 1; 2,700 roots): accepted over claimed first tokens, by the buckets of
`factor_table`. Deeper nodes of a doubtful draft are doubtful twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whiflash.core.rows import RouteRow
from whiflash.routing.factor_table import Floats, bucket_of

_FIRST = np.array(
    [  # entropy to 0.1, 0.5, 1.5, 3 nats and above
        [1.00, 0.60, 0.60, 0.40, 0.15],  # nothing matched: a prediction's or a prompt's beginning
        [1.10, 0.58, 0.58, 0.37, 0.12],  # one token
        [1.23, 1.00, 0.73, 0.60, 0.23],  # 2 to 3
        [1.30, 1.19, 0.97, 0.95, 0.59],  # 4 to 7
        [1.19, 1.16, 0.88, 0.74, 0.74],  # 8 to 15
        [1.08, 1.07, 0.94, 0.94, 0.94],  # 16 to 31
        [1.03, 1.03, 1.03, 1.00, 1.00],  # 32 and more
    ]
)
_DEEPER = _FIRST * np.minimum(_FIRST, 1.0)
_CEILING = 0.995


def trusted(rows: Sequence[RouteRow], claimed: Floats) -> Floats:
    """claimed: float64 [N, K], survival by rank that retrieved drafts of `rows` claim. The same,
    corrected, non-increasing."""
    if not rows:
        return claimed
    buckets = np.array([bucket_of(row) for row in rows])
    odds = claimed * _DEEPER[buckets[:, 0], buckets[:, 1]][:, None]
    odds[:, :1] = claimed[:, :1] * _FIRST[buckets[:, 0], buckets[:, 1]][:, None]
    np.minimum(odds, _CEILING, out=odds)
    return np.minimum.accumulate(odds, axis=1, out=odds)
