"""The measured verify curve: what one forward costs on this machine by its number of rows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch

from whiflash.core.costs import CostCurve
from whiflash.core.protocols import ForwardSegment, SequenceCache
from whiflash.target.target import LocalTarget

VERIFY_ROWS = (1, 2, 4, 8, 16, 32, 64)
PREFILL_ROWS = (128, 256)
CONTEXT_TOKENS = 128
PROBE_TOKENS = CONTEXT_TOKENS + PREFILL_ROWS[-1]
_REPEATS = 5
_PREFILL_REPEATS = 2
# On a slow or busy machine fewer repeats must do; every size is timed once whatever it takes.
_BUDGET_S = 6.0
_REVALIDATED_ROWS = 8
# Shared machines drift by half; kernels or a machine that changed show as more.
_MAX_DRIFT = 2.0


def measure_curve(target: LocalTarget, text_ids: Sequence[int]) -> CostCurve:
    """Median milliseconds of one forward of 1 to 256 rows behind CONTEXT_TOKENS of context.

    Up to 64 rows all logits are asked for (a verify), above only the last (a prefill chunk).
    `text_ids` holds PROBE_TOKENS ids. Sizes take turns, so that drift spreads over all of them.
    """
    sizes = [size for size in (*VERIFY_ROWS, *PREFILL_ROWS) if _fits(size, text_ids)]
    times = time_forwards(target, text_ids, sizes)
    return CostCurve(tuple((size, times[size]) for size in sizes))


def agrees(curve: CostCurve, target: LocalTarget, text_ids: Sequence[int]) -> bool:
    """Whether one point of an earlier curve still holds, within what a busy machine explains."""
    now = time_forwards(target, text_ids, [_REVALIDATED_ROWS])[_REVALIDATED_ROWS]
    before = curve.at(_REVALIDATED_ROWS)
    return before / _MAX_DRIFT <= now <= before * _MAX_DRIFT


def time_forwards(
    target: LocalTarget, text_ids: Sequence[int], sizes: Sequence[int], repeats: int = _REPEATS
) -> dict[int, float]:
    """Median milliseconds per number of rows."""
    ids = np.asarray(text_ids, np.int64)
    cache = target.new_cache(len(ids))
    target.forward([ForwardSegment(cache, ids[:CONTEXT_TOKENS])])
    cache.commit(range(min(CONTEXT_TOKENS, len(ids))))
    samples: dict[int, list[float]] = {size: [] for size in sizes}
    deadline = time.monotonic() + _BUDGET_S
    for turn in range(repeats + 1):
        if turn > 1 and time.monotonic() > deadline:
            break
        for size in sizes:
            if size <= VERIFY_ROWS[-1] or turn <= _PREFILL_REPEATS:
                elapsed = _time_one(target, cache, ids[CONTEXT_TOKENS:], size)
                if turn:  # the first turn warms caches and kernels
                    samples[size].append(elapsed)
    cache.release()
    return {size: statistics.median(values) for size, values in samples.items()}


def _fits(size: int, text_ids: Sequence[int]) -> bool:
    return CONTEXT_TOKENS + size <= len(text_ids)


def _time_one(
    target: LocalTarget,
    cache: SequenceCache,
    ids: np.ndarray[tuple[int], np.dtype[np.int64]],
    size: int,
) -> float:
    num_logits = size if size <= VERIFY_ROWS[-1] else 1
    start = time.perf_counter()
    output = target.forward([ForwardSegment(cache, ids[:size], None, num_logits)])
    if output.logits.is_cuda:
        torch.cuda.synchronize(output.logits.device)
    elapsed = (time.perf_counter() - start) * 1e3
    cache.commit(())
    return elapsed
