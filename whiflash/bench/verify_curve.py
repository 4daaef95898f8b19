"""Suite `core`: what one forward costs over its number of rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from whiflash.bench.suite import Column, Table
from whiflash.bench.timing import timed
from whiflash.core.protocols import ForwardSegment, SequenceCache, Target

CHAIN_ROWS: Final = (1, 2, 4, 8, 16, 32)
CONTEXTS: Final = (128, 1024)
_CHUNK: Final = 256


def measure_curve(target: Target, text_ids: Sequence[int], num_repeats: int) -> Table:
    """Chains of k rows behind contexts of real text; medians over rounds that go through all k
    in turn, so that drift hits every k alike."""
    columns = [Column("context", "context")]
    columns += [Column(f"ms_{k}", f"{k} row{'s' if k > 1 else ''}, ms", ".1f") for k in CHAIN_ROWS]
    columns += [Column("ratio_8", "8 : 1", ".2f"), Column("ratio_16", "16 : 1", ".2f")]
    rows = tuple(_context_row(target, text_ids, context, num_repeats) for context in CONTEXTS)
    note = "One sequence, a chain of k drafted rows, logits of every row, medians."
    return Table("verify_curve", "The verify curve", note, tuple(columns), rows)


def _context_row(
    target: Target, text_ids: Sequence[int], context: int, num_repeats: int
) -> dict[str, Any]:
    ids = np.resize(np.asarray(text_ids, np.int64), context + max(CHAIN_ROWS))
    cache = target.new_cache(context + max(CHAIN_ROWS))
    try:
        _prefill(target, cache, ids[:context])
        times = _chain_times(target, cache, ids[context:], num_repeats)
    finally:
        cache.release()
    medians = {k: statistics.median(values) for k, values in times.items()}
    row: dict[str, Any] = {"context": context}
    row |= {f"ms_{k}": round(ms, 3) for k, ms in medians.items()}
    row |= {f"ratio_{k}": round(medians[k] / medians[1], 4) for k in (8, 16)}
    return row


def _prefill(target: Target, cache: SequenceCache, ids: np.ndarray[Any, Any]) -> None:
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        target.forward([ForwardSegment(cache, chunk)])
        cache.commit(range(len(chunk)))


def _chain_times(
    target: Target, cache: SequenceCache, ids: np.ndarray[Any, Any], num_repeats: int
) -> dict[int, list[float]]:
    times: dict[int, list[float]] = {k: [] for k in CHAIN_ROWS}
    for repeat in range(num_repeats + 1):
        for k in CHAIN_ROWS:
            segment = ForwardSegment(cache, ids[:k], num_logits=k)
            sample = timed(partial(target.forward, [segment]))
            cache.commit(())
            if repeat:  # the first round warms up
                times[k].append(1e3 * sample.seconds)
    return times
