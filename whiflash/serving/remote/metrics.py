"""What a gateway tells about its verifiers at a scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from whiflash.serving.remote.backend import RemoteBackend
from whiflash.serving.remote.pool import VerifierPool


class ClusterCollector(Collector):
    """Reads at each scrape; registers like any collector."""

    def __init__(self, pool: VerifierPool, backend: RemoteBackend) -> None:
        self._pool = pool
        self._backend = backend

    def describe(self) -> list[Metric]:
        """Nothing beforehand, so that registering does not read."""
        return []

    def collect(self) -> Iterator[Metric]:
        states = self._pool.status()
        live = sum(state.is_live for state in states)
        verifiers = GaugeMetricFamily(
            "whiflash_verifiers", "verifiers that are known, by whether they take requests",
            labels=["state"],
        )  # fmt: skip
        verifiers.add_metric(["live"], live)
        verifiers.add_metric(["other"], len(states) - live)
        yield verifiers
        running = GaugeMetricFamily(
            "whiflash_verifier_running", "sequences in a verifier's forward", labels=["verifier"]
        )
        waiting = GaugeMetricFamily(
            "whiflash_verifier_waiting", "sequences that wait in a verifier", labels=["verifier"]
        )
        for state in states:
            running.add_metric([state.address], state.running)
            waiting.add_metric([state.address], state.waiting)
        yield running
        yield waiting
        yield CounterMetricFamily(
            "whiflash_moves", "requests that went on at another verifier",
            value=self._backend.num_moves,
        )  # fmt: skip
        yield GaugeMetricFamily(
            "whiflash_backend_in_flight", "requests that a verifier has or that look for one",
            value=self._backend.num_in_flight,
        )  # fmt: skip
        looks = CounterMetricFamily(
            "whiflash_lease_looks", "looks for where a session was, by how they ended",
            labels=["outcome"],
        )  # fmt: skip
        for outcome, count in (self._pool.leases.looks if self._pool.leases else {}).items():
            looks.add_metric([outcome], count)
        yield looks
