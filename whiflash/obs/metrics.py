"""Prometheus metrics of a server. All is added up per finished turn or read at a scrape, nothing
per token: the whole costs far less than a hundredth of a round."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from whiflash.core.usage import ArmUsage, Usage

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LONG_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0)
_SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)


class ArmMetrics:
    """Counters by arm and by position in the draft. Over any span of time
    round_tokens / rounds = 1 + sum over positions of accepted_at / rounds, exactly: rounds that
    end a turn are counted apart (design.md 2, accepted length)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def by_arm(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ["arm", *labels], registry=registry)

        self._rounds = by_arm("whiflash_rounds", "rounds that did not end their turn")
        self._tokens = by_arm("whiflash_round_tokens", "tokens of rounds that ended no turn")
        self._drafted = by_arm("whiflash_drafted_tokens", "draft nodes verified, ending rounds too")
        self._accepted = by_arm("whiflash_accepted_tokens", "draft nodes accepted")
        self._ending = by_arm("whiflash_ending_rounds", "rounds that ended their turn")
        self._ending_tokens = by_arm("whiflash_ending_round_tokens", "tokens of ending rounds")
        self._discarded = by_arm("whiflash_discarded_tokens", "accepted behind the end of a turn")
        self._drafted_at = by_arm(
            "whiflash_drafted_at", "rounds whose draft reached the position", "position"
        )
        self._accepted_at = by_arm(
            "whiflash_accepted_at", "rounds that accepted the position", "position"
        )

    def add(self, arm: str, usage: ArmUsage) -> None:
        """One finished turn's numbers of one arm."""
        totals = (
            (self._rounds, usage.rounds), (self._tokens, usage.emitted),
            (self._drafted, usage.drafted), (self._accepted, usage.accepted),
            (self._ending, usage.ending_rounds), (self._ending_tokens, usage.ending_emitted),
            (self._discarded, usage.discarded),
        )  # fmt: skip
        for counter, value in totals:
            counter.labels(arm).inc(value)
        for counter, counts in (
            (self._drafted_at, usage.drafted_at), (self._accepted_at, usage.accepted_at)
        ):  # fmt: skip
            for position, value in enumerate(counts, start=1):
                counter.labels(arm, str(position)).inc(value)


class ServerMetrics:
    """A registry of its own, so that one process may hold several servers."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.arms = ArmMetrics(registry)
        self.in_flight = Gauge(
            "whiflash_requests_in_flight", "calls between arrival and end", registry=registry
        )
        self._requests = Counter(
            "whiflash_requests", "calls by how they ended", ["outcome"], registry=registry
        )
        self._turns = Counter(
            "whiflash_turns", "answers by finish reason", ["reason"], registry=registry
        )
        self._tokens = Counter(
            "whiflash_tokens", "tokens of ended turns: prompt, cached (part of prompt), completion",
            ["kind"], registry=registry,
        )  # fmt: skip
        self._predicted = Counter(
            "whiflash_prediction_tokens", "tokens of predictions", ["outcome"], registry=registry
        )
        self._ttft = self._histogram(
            "whiflash_time_to_first_token_seconds", "from arrival to the first token", _LONG_S
        )
        self._tpot = self._histogram(
            "whiflash_time_per_token_seconds", "decode time per token of one answer", _SHORT_S
        )
        self._queue = self._histogram(
            "whiflash_queue_seconds", "from arrival until the engine took the call", _LONG_S
        )
        self._duration = self._histogram(
            "whiflash_request_seconds", "from arrival to the end of a call", _LONG_S
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)

    def call_ended(self, outcome: str, duration_s: float) -> None:
        """`outcome`: ok, or the name of a gRPC status in small letters."""
        self._requests.labels(outcome).inc()
        self._duration.observe(duration_s)

    def handed_over(self, queue_s: float) -> None:
        self._queue.observe(queue_s)

    def first_token(self, seconds: float) -> None:
        self._ttft.observe(seconds)

    def turn_ended(self, reason: str, usage: Usage) -> None:
        """One choice is done."""
        self._turns.labels(reason).inc()
        self._tokens.labels("prompt").inc(usage.prompt_tokens)
        self._tokens.labels("cached").inc(usage.cached_tokens)
        self._tokens.labels("completion").inc(usage.completion_tokens)
        if usage.completion_tokens > 1:
            self._tpot.observe(usage.decode_ms / 1e3 / (usage.completion_tokens - 1))
        for arm, numbers in usage.arms.items():
            self.arms.add(arm, numbers)

    def prediction(self, accepted: int, rejected: int) -> None:
        self._predicted.labels("accepted").inc(accepted)
        self._predicted.labels("rejected").inc(rejected)

    def text(self) -> bytes:
        """The exposition format of CONTENT_TYPE."""
        return generate_latest(self.registry)
