"""How many verifiers there should be, from what they report (Verifier.record_autoscaling_stats)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

TARGET_BUSY = 0.7
"""Of all slots, running and waiting requests together: below it nobody waits long, above it a
burst does."""

TARGET_KV = 0.8
"""Of the KV memory: above it admission preempts."""


def wanted_replicas(busy: Mapping[str, float], kv: Mapping[str, float]) -> int:
    """By the last report of each replica: as many as bring the load to its target."""
    load = max(sum(busy.values()) / TARGET_BUSY, sum(kv.values()) / TARGET_KV)
    return max(1, math.ceil(load - 1e-9))


class VerifierPolicy:
    """A Serve autoscaling policy. A change must be wanted for `upscale_s` or `downscale_s`
    without a break; downwards one replica at a time, as its requests must move."""

    def __init__(self, upscale_s: float, downscale_s: float) -> None:
        self._upscale_s = upscale_s
        self._downscale_s = downscale_s

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        """`ctx` is ray.serve.config.AutoscalingContext; the state is since when which way."""
        busy, kv = _last(ctx, "busy"), _last(ctx, "kv")
        state = dict(ctx.policy_state or {})
        now_s = time.time()
        return self.decide(ctx.target_num_replicas, busy, kv, state, now_s)

    def decide(
        self,
        current: int,
        busy: Mapping[str, float],
        kv: Mapping[str, float],
        state: dict[str, Any],
        now_s: float,
    ) -> tuple[int, dict[str, Any]]:
        """The number of replicas from now on, and the state for the next call."""
        wanted = wanted_replicas(busy, kv) if busy else current
        way = (wanted > current) - (wanted < current)
        since_s = state.get("since_s", now_s) if state.get("way") == way else now_s
        hold_s = self._upscale_s if way > 0 else self._downscale_s
        if way == 0 or now_s - since_s < hold_s:
            return current, {"way": way, "since_s": since_s}
        step = wanted if way > 0 else current - 1
        return step, {"way": way, "since_s": now_s}


def _last(ctx: Any, name: str) -> dict[str, float]:
    """The last report of each replica that runs."""
    series = (ctx.raw_metrics or {}).get(name, {})
    return {
        str(replica): points[-1].value
        for replica, points in series.items()
        if points and replica in ctx.running_replicas
    }
