"""A cost of the form fixed + per_row * rows, fitted online."""

from __future__ import annotations


class LinearCost:
    """Milliseconds over a number of rows, by least squares with exponential forgetting.

    Both coefficients stay >= 0. While only one row count was seen, all of the cost counts as
    fixed: a batched call is dearer by less than its share, and the slope is learned at the
    first other row count. Where the first count may be a large one (`begins_large`) only one
    row's share of it does: a small call that looked as dear would not be made, so its cost never
    learned. A single slow call (this is wall clock) counts at most `max_ratio` times the
    prediction.
    """

    def __init__(
        self,
        fixed_ms: float = 0.0,
        per_row_ms: float = 0.0,
        *,
        window: int = 200,
        max_ratio: float = 3.0,
        warm_up: int = 8,
        begins_large: bool = False,
    ) -> None:
        self.fixed_ms = fixed_ms
        self.per_row_ms = per_row_ms
        self.num_observed = 0
        self._keep = 1.0 - 1.0 / window
        self._max_ratio = max_ratio
        self._warm_up = warm_up
        self._begins_large = begins_large
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def at(self, rows: int) -> float:
        """Milliseconds of one call for `rows` rows; 0 for none."""
        return self.fixed_ms + self.per_row_ms * rows if rows > 0 else 0.0

    def observe(self, rows: int, ms: float) -> None:
        if rows <= 0 or ms < 0.0:
            return
        if self.num_observed >= self._warm_up:
            ms = min(ms, self._max_ratio * self.at(rows) + 0.01)
        self.num_observed += 1
        keep = self._keep
        self._weight = self._weight * keep + 1.0
        self._x = self._x * keep + rows
        self._y = self._y * keep + ms
        self._xx = self._xx * keep + rows * rows
        self._xy = self._xy * keep + rows * ms
        self._fit()

    def _fit(self) -> None:
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        spread = self._xx / self._weight - mean_x * mean_x
        tilt = self._xy / self._weight - mean_x * mean_y
        slope = (1.0 - 1.0 / mean_x) * mean_y / mean_x if self._begins_large else 0.0
        if spread > 1e-6 * mean_x * mean_x:
            slope = max(tilt / spread, 0.0)
        if slope * mean_x > mean_y:
            slope = mean_y / mean_x
        self.per_row_ms = slope
        self.fixed_ms = mean_y - slope * mean_x

    def describe(self) -> dict[str, float]:
        return {
            "fixed_ms": round(self.fixed_ms, 4),
            "per_row_ms": round(self.per_row_ms, 4),
            "observed": self.num_observed,
        }
