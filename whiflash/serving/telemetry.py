"""What a call leaves behind: metrics, one log line, a span. Numbers and short words only."""

from __future__ import annotations

import logging
import time

from whiflash.core.rows import NONE
from whiflash.obs.json_logs import log_event, log_fault
from whiflash.obs.metrics import ServerMetrics
from whiflash.obs.tracing import NoTracer, Tracer
from whiflash.serving.caller import CallContext
from whiflash.serving.errors import status_of
from whiflash.serving.stream import Ended

logger = logging.getLogger("whiflash.calls")


class Telemetry:
    """Shared by all calls of a server."""

    def __init__(self, metrics: ServerMetrics | None = None, tracer: Tracer | None = None) -> None:
        self.metrics = metrics or ServerMetrics()
        self.tracer: Tracer = tracer or NoTracer()

    def begin(self, context: CallContext) -> CallTrack:
        """A call arrived; end the track whatever happens."""
        return CallTrack(self, context)


class CallTrack:
    """One call, which also knows what it is charged for."""

    def __init__(self, telemetry: Telemetry, context: CallContext) -> None:
        self._metrics = telemetry.metrics
        self._context = context
        self._span = telemetry.tracer.start("whiflash.generate", context.trace_parent)
        self._first_s: float | None = None
        self._queue_s: float | None = None
        self._reasons: list[str] = []
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated = 0
        self._drafted = 0
        self._accepted = 0
        self._metrics.in_flight.inc()

    def handed_over(self) -> None:
        """The engine has it now."""
        self._queue_s = self._elapsed_s()
        self._metrics.handed_over(self._queue_s)
        self._span.event("handed over")

    @property
    def charged_tokens(self) -> int:
        """What the key pays: nothing for a call that never ran, nor for a cached prompt."""
        if self._queue_s is None:
            return 0
        return self.prompt_tokens - self.cached_tokens + self.generated

    def tokens(self, count: int) -> None:
        """A round's tokens of one choice."""
        self.generated += count
        if self._first_s is None and count:
            self._first_s = self._elapsed_s()
            self._metrics.first_token(self._first_s)
            self._span.event("first token")

    def turn(self, ended: Ended) -> None:
        """One choice is done."""
        usage, reason = ended.completion.usage, ended.completion.finish_reason.value
        self._reasons.append(reason)
        self.cached_tokens = max(self.cached_tokens, usage.cached_tokens)
        self._drafted += sum(arm.drafted for name, arm in usage.arms.items() if name != NONE)
        self._accepted += sum(arm.accepted for arm in usage.arms.values())
        self._metrics.turn_ended(reason, usage)
        self._metrics.prediction(ended.accepted_prediction_tokens, ended.rejected_prediction_tokens)

    def end(self, error: BaseException | None) -> None:
        """The call is over."""
        outcome = "ok" if error is None else status_of(error).grpc.lower()
        duration_s = self._elapsed_s()
        self._metrics.in_flight.dec()
        self._metrics.call_ended(outcome, duration_s)
        numbers = {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.generated,
            "drafted_tokens": self._drafted,
            "accepted_tokens": self._accepted,
        }
        self._span.end(
            {f"whiflash.{name}": value for name, value in numbers.items()},
            "" if error is None else outcome,
        )
        caller = self._context.caller
        log_event(logger, "call", {
            "request_id": self._context.request_id, "key": caller.key_id,
            "tenant": caller.tenant, "project": caller.project, "outcome": outcome,
            "finish": ",".join(sorted(set(self._reasons))), **numbers,
            "queue_ms": _ms(self._queue_s), "first_token_ms": _ms(self._first_s),
            "total_ms": _ms(duration_s),
        })  # fmt: skip
        if error is not None and outcome == "internal":
            log_fault(logger, "call failed", error, request_id=self._context.request_id)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._context.received_s


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 2)
