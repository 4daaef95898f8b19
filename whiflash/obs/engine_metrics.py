"""What an engine tells about itself at a scrape: load, memory, goodput, price, totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_TOTALS = (
    "steps", "plain_steps", "prefill_tokens", "verified_rows", "emitted_tokens", "shadows",
    "shadows_denied", "regret_roots", "regret",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineState:
    """gauges: values by name without prefix; plan: the resolved plan with live values."""

    gauges: Mapping[str, float]
    plan: Mapping[str, Any]


class EngineCollector(Collector):
    """Reads at each scrape; registers like any collector. `read` must be quick and thread-safe."""

    def __init__(self, read: Callable[[], EngineState]) -> None:
        self._read = read

    def describe(self) -> list[Metric]:
        """Nothing beforehand, so that registering does not read."""
        return []

    def collect(self) -> Iterator[Metric]:
        state = self._read()
        for name, value in state.gauges.items():
            yield GaugeMetricFamily(f"whiflash_{name}", name.replace("_", " "), value=value)
        counters = state.plan.get("counters", {})
        for name in _TOTALS:
            if name in counters:
                yield CounterMetricFamily(
                    f"whiflash_engine_{name}", f"{name.replace('_', ' ')} since start",
                    value=counters[name],
                )  # fmt: skip
        yield from _prices(state.plan.get("routing", {}).get("price", {}))


def _prices(table: Mapping[str, Mapping[str, float]]) -> Iterator[Metric]:
    price = GaugeMetricFamily(
        "whiflash_price_tokens_per_second",
        "lambda: what a second of a step is worth in tokens, by largest batch", labels=["batch"],
    )  # fmt: skip
    ratio = GaugeMetricFamily(
        "whiflash_goodput_over_plain", "goodput over plain decoding, by largest batch",
        labels=["batch"],
    )  # fmt: skip
    for batch, row in table.items():
        price.add_metric([batch], row["tokens_per_s"])
        ratio.add_metric([batch], row["goodput_over_plain"])
    yield price
    yield ratio
