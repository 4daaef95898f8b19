"""How many replicas there should be, from what they report (`record_autoscaling_stats`)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Final

VERIFIER_TARGETS: Final = {"busy": 0.7, "kv": 0.8}
"""busy: of all slots, running and waiting requests together: below it nobody waits long, above it
a burst does. kv: of the KV memory: above it admission preempts."""

DRAFTER_TARGETS: Final = {"busy": 0.6}
"""Of its time: above it verifiers wait for each other's drafts."""


def wanted_replicas(
    reports: Mapping[str, Mapping[str, float]], targets: Mapping[str, float]
) -> int:
    """By the last report of each replica, signal by signal: as many as bring the load to its
    target in all of them."""
    load = max(sum(reports[name].values()) / target for name, target in targets.items())
    return max(1, math.ceil(load - 1e-9))


class LoadPolicy:
    """A Serve autoscaling policy. A change must be wanted for `upscale_s` or `downscale_s`
    without a break; downwards one replica at a time, as its requests must move. targets: what a
    replica should report on average, by signal."""

    def __init__(self, targets: Mapping[str, float], upscale_s: float, downscale_s: float) -> None:
        self._targets = dict(targets)
        self._upscale_s = upscale_s
        self._downscale_s = downscale_s

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        """`ctx` is ray.serve.config.AutoscalingContext; the state is since when which way."""
        reports = {name: _last(ctx, name) for name in self._targets}
        state = dict(ctx.policy_state or {})
        now_s = time.time()
        return self.decide(ctx.target_num_replicas, reports, state, now_s)

    def decide(
        self,
        current: int,
        reports: Mapping[str, Mapping[str, float]],
        state: dict[str, Any],
        now_s: float,
    ) -> tuple[int, dict[str, Any]]:
        """The number of replicas from now on, and the state for the next call."""
        has_reports = all(reports[name] for name in self._targets)
        wanted = wanted_replicas(reports, self._targets) if has_reports else current
        way = (wanted > current) - (wanted < current)
        since_s = state.get("since_s", now_s) if state.get("way") == way else now_s
        hold_s = self._upscale_s if way > 0 else self._downscale_s
        if way == 0 or now_s - since_s < hold_s:
            return current, {"way": way, "since_s": since_s}
        step = wanted if way > 0 else current - 1
        return step, {"way": way, "since_s": now_s}


class BusyShare:
    """What share of the time between two reports a worker was at work."""

    def __init__(self, now_s: float) -> None:
        self._busy_s = 0.0
        self._at_s = now_s

    def since_last(self, busy_s: float, now_s: float) -> float:
        """busy_s: seconds at work since the worker's start; a smaller value than the last one is
        another worker's. In [0, 1]."""
        worked = busy_s - self._busy_s if busy_s >= self._busy_s else busy_s
        passed = now_s - self._at_s
        self._busy_s, self._at_s = busy_s, now_s
        return min(worked / passed, 1.0) if passed > 0 else 0.0


def _last(ctx: Any, name: str) -> dict[str, float]:
    """The last report of each replica that runs."""
    series = (ctx.raw_metrics or {}).get(name, {})
    return {
        str(replica): points[-1].value
        for replica, points in series.items()
        if points and replica in ctx.running_replicas
    }
