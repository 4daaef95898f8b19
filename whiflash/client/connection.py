"""Where a client connects to, and what it sends along with every call."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from whiflash.client.errors import REQUEST_ID_KEY

DEFAULT_TARGET = "127.0.0.1:9000"
MAX_RESPONSE_BYTES = 64 << 20
Metadata = tuple[tuple[str, str], ...]

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Of one call.

    timeout_s:   for all of it, reconnecting included; None for no end.
    request_id:  what `cancel` and the server's log know it by; "" makes one.
    traceparent: W3C trace context; "" for none.
    """

    timeout_s: float | None = None
    request_id: str = ""
    traceparent: str = ""


class CallFrame:
    """A call's metadata and its remaining time, the same for each attempt."""

    def __init__(self, api_key: str | None, settings: CallSettings) -> None:
        self.request_id = settings.request_id or f"req-{secrets.token_hex(12)}"
        pairs = [(REQUEST_ID_KEY, self.request_id)]
        if api_key:
            pairs.append(("authorization", f"Bearer {api_key}"))
        if settings.traceparent:
            pairs.append(("traceparent", settings.traceparent))
        self.metadata: Metadata = tuple(pairs)
        timeout_s = settings.timeout_s
        self._deadline_s = None if timeout_s is None else time.monotonic() + timeout_s

    def remaining_s(self) -> float | None:
        """Seconds left, not below 0; None without a limit."""
        if self._deadline_s is None:
            return None
        return max(0.0, self._deadline_s - time.monotonic())

    def clip_s(self, wait_s: float) -> float:
        """A wait that does not outlast the call."""
        left_s = self.remaining_s()
        return wait_s if left_s is None else min(wait_s, left_s)
