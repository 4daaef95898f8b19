"""Paired timings: what is compared runs in alternation, in the same minutes on the same machine."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Sample(Generic[Result]):
    """One run: its wall-clock seconds and what it returned."""

    seconds: float
    result: Result


def timed(run: Callable[[], Result]) -> Sample[Result]:
    """Runs once."""
    start = time.perf_counter()
    result = run()
    return Sample(time.perf_counter() - start, result)


def alternate(
    runs: Mapping[str, Callable[[], Result]], num_repeats: int
) -> dict[str, list[Sample[Result]]]:
    """Every run once per repeat, in an order that turns round each time (ABBA), so that drift
    of the machine cancels. Samples with the same index belong together."""
    samples: dict[str, list[Sample[Result]]] = {name: [] for name in runs}
    for repeat in range(num_repeats):
        names = list(runs) if repeat % 2 == 0 else list(runs)[::-1]
        for name in names:
            samples[name].append(timed(runs[name]))
    return samples


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of paired ratios. `lower` bounds the true median from below with 95 % confidence
    (order statistic, no assumption on the distribution); None with fewer than five pairs."""

    median: float
    lower: float | None
    num_pairs: int

    def record(self) -> dict[str, Any]:
        """For JSON, four digits."""
        lower = None if self.lower is None else round(self.lower, 4)
        return {"median": round(self.median, 4), "lower": lower, "pairs": self.num_pairs}


def paired_ratio(baseline: Sequence[float], ours: Sequence[float]) -> Ratio:
    """Speed-up of `ours` over `baseline`, both in the same unit of time, pair by pair."""
    ratios = sorted(b / o for b, o in zip(baseline, ours, strict=True))
    rank = lower_rank(len(ratios), CONFIDENCE)
    lower = None if rank is None else ratios[rank - 1]
    return Ratio(statistics.median(ratios), lower, len(ratios))


def lower_rank(count: int, confidence: float) -> int | None:
    """Largest k such that the k-th smallest of `count` values lies under the true median with at
    least that confidence: P(Binomial(count, 1/2) < k) <= 1 - confidence. None where even k = 1
    does not."""
    below, rank = 0.0, 0
    for k in range(count):
        below += math.comb(count, k) / 2**count
        if below > 1 - confidence:
            break
        rank = k + 1
    return rank or None
