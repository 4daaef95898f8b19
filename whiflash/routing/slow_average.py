"""A ratio of two sums that forgets slowly and starts from a prior."""

from __future__ import annotations


class SlowRatio:
    """sum of numerators / sum of denominators over about the last `window` additions.

    prior is worth `prior_weight` additions of the mean size, so one early addition moves little.
    """

    def __init__(self, window: int, prior: float = 1.0, prior_weight: float = 4.0) -> None:
        self._keep = 1.0 - 1.0 / window
        self._prior = prior
        self._prior_weight = prior_weight
        self.reset()

    def reset(self) -> None:
        self._weight = self._numerator = self._denominator = 0.0
        self.num_added = 0

    def add(self, numerator: float, denominator: float) -> None:
        keep = self._keep
        self._weight = self._weight * keep + 1.0
        self._numerator = self._numerator * keep + numerator
        self._denominator = self._denominator * keep + denominator
        self.num_added += 1

    @property
    def value(self) -> float:
        if self._denominator <= 0.0:
            return self._prior
        belief = self._prior_weight * self._denominator / self._weight
        # The prior fades with the evidence, so that in the long run the measurement stands alone.
        belief *= self._prior_weight / (self._prior_weight + self.num_added)
        return (self._numerator + self._prior * belief) / (self._denominator + belief)
