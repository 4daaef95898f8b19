"""Prometheus metrics of our own servers: calls and open streams, by method."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0, 3600.0)


class RpcMetrics:
    """Of one process; `registry` is its own unless one is given."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry = registry or CollectorRegistry()
        self._ended = Counter(
            "whiflash_rpc_calls", "internal calls by how they ended", ["method", "code"],
            registry=registry,
        )  # fmt: skip
        self._open = Gauge(
            "whiflash_rpc_open_calls", "internal calls that run, streams included", ["method"],
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "whiflash_rpc_seconds", "how long internal calls ran", ["method"], buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip

    def began(self, method: str) -> None:
        """`method`: Service/Name, of a call that is served here."""
        self._open.labels(method).inc()

    def ended(self, method: str, code: str, seconds: float) -> None:
        """`code`: name of a gRPC status in small letters."""
        self._open.labels(method).dec()
        self._ended.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds)

    def num_open(self, method: str) -> int:
        """Calls of a method that run now."""
        return int(self._open.labels(method)._value.get())
