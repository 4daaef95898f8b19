"""lambda: what a millisecond of a step is worth in tokens, and what plain decoding yields."""

from __future__ import annotations

from whiflash.core.rows import StepCost
from whiflash.routing.costs import Costs
from whiflash.routing.slow_average import SlowRatio

_MAX_SLOWDOWN = 3.0
_MAX_RATIO = 32.0


def load_bucket(rows: int) -> int:
    """Batch sizes that are compared with each other: 1, 2, 3-4, 5-8, 9-16, ..."""
    return (max(rows, 1) - 1).bit_length()


class LoadPrice:
    """Rates at one load bucket, relative to what the cost model predicts for plain steps."""

    def __init__(self, window: int) -> None:
        self.plain_slowdown = SlowRatio(window=20, prior_weight=2.0)
        self.routed = SlowRatio(window=window, prior_weight=8.0)
        self.drafted = SlowRatio(window=window, prior_weight=4.0)


class Price:
    """Tokens per millisecond, as slow averages over whole decode steps.

    Rates depend on the batch, so they are kept per load bucket and *relative to plain decoding of
    the same number of rows*: goodput = `relative` * plain_rate(rows). The plain rate is the cost
    model's prediction times a slowdown measured on steps that did not even look for drafts. Steps
    that carry prefill are left out: their extra time buys no decoded token, and is spent anyway.

    window: steps in the average, at least 50: a fast average would chase the last draft.
    """

    def __init__(self, costs: Costs, window: int = 64) -> None:
        self._costs = costs
        self._window = window
        self._loads: dict[int, LoadPrice] = {}

    def load(self, rows: int) -> LoadPrice:
        bucket = load_bucket(rows)
        if bucket not in self._loads:
            self._loads[bucket] = LoadPrice(self._window)
        return self._loads[bucket]

    def plain_rate(self, rows: int) -> float:
        """Tokens per ms of a wholly plain step of `rows` rows."""
        slow = self.load(rows).plain_slowdown.value
        return rows / max(self._costs.plain_ms(rows) * slow, 1e-6)

    def relative(self, rows: int) -> float:
        """Goodput of all decode steps at this load over plain; 1 until measured."""
        return min(max(self.load(rows).routed.value, 1.0 / _MAX_RATIO), _MAX_RATIO)

    def at(self, rows: int) -> float:
        """lambda, in tokens per ms, for a batch of `rows` decode rows. Never below plain: that rate
        can be had any time, and a lower price would let losing drafts make more of their kind."""
        return max(self.relative(rows), 1.0) * self.plain_rate(rows)

    def observe(self, step: StepCost, rows: int) -> None:
        """Learn from one step with `rows` decode rows."""
        if not step.was_decode_only or rows <= 0 or step.total_ms <= 0.0:
            return
        load = self.load(rows)
        predicted_ms = self._costs.plain_ms(rows)
        if step.was_bare:
            most = _MAX_SLOWDOWN * load.plain_slowdown.value * predicted_ms
            load.plain_slowdown.add(min(step.total_ms, most), predicted_ms)
        expected_ms = self._costs.plain_ms(rows) * load.plain_slowdown.value
        expected_ms += float(self._costs.verify_table(step.tokens, 1)[0])
        # One hiccup of the machine must not set the price for a hundred steps.
        ms = min(step.total_ms, _MAX_SLOWDOWN * expected_ms)
        worth = ms * self.plain_rate(rows)
        load.routed.add(step.emitted, worth)
        if not step.was_plain:
            load.drafted.add(step.emitted, worth)

    def describe(self) -> dict[str, dict[str, float]]:
        """Per load bucket (its largest batch): price, plain rate (tokens/s) and their ratio."""
        table: dict[str, dict[str, float]] = {}
        for bucket, load in sorted(self._loads.items()):
            rows = 1 << bucket
            table[str(rows)] = {
                "tokens_per_s": round(1000.0 * self.at(rows), 3),
                "plain_tokens_per_s": round(1000.0 * self.plain_rate(rows), 3),
                "goodput_over_plain": round(self.relative(rows), 4),
                "drafted_over_plain": round(load.drafted.value, 4),
                "plain_steps": load.plain_slowdown.num_added,
                "steps": load.routed.num_added,
            }
        return table
