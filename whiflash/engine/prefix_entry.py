"""What a finished turn left behind, and how a prompt agrees with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whiflash.core.protocols import SequenceCache

Ids = npt.NDArray[np.int32]


def common_prefix_tokens(a: Ids, b: Ids) -> int:
    """Length of the longest common prefix of two id arrays."""
    limit = min(len(a), len(b))
    differs = np.flatnonzero(a[:limit] != b[:limit])
    return int(differs[0]) if len(differs) else limit


@dataclass(slots=True, eq=False)
class PrefixEntry:
    """ids[i] is the id whose KV stands at position i of `cache`; the first `num_prompt` were the
    turn's prompt. Drafters know the turn that left it as `draft_id`."""

    namespace: str
    ids: Ids
    num_prompt: int
    cache: SequenceCache
    draft_id: int
    last_used: int = 0
    parked_until_s: float = 0.0
