"""Measured costs as piecewise linear curves."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Milliseconds over a count (tokens in a forward, nodes in a draft).

    points: (count, ms), counts strictly increasing, at least one. Between points the cost is
    interpolated; beyond the last it grows with the last segment's slope per count.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        counts = [count for count, _ in self.points]
        if not counts or any(a >= b for a, b in pairwise(counts)):
            raise ValueError(f"cost curve needs increasing counts, got {counts}")

    def at(self, count: int) -> float:
        counts = [c for c, _ in self.points]
        if count <= counts[0] or len(counts) == 1:
            return self.points[0][1]
        right = min(bisect_left(counts, count), len(counts) - 1)
        (c0, t0), (c1, t1) = self.points[right - 1], self.points[right]
        slope = (t1 - t0) / (c1 - c0)
        if count > c1:
            slope = max(slope, 0.0)
        return t0 + slope * (count - c0)
