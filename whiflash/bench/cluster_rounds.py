"""What a round costs when drafter and policy are in processes of their own on the same machine:
against the same drafter in the engine's process, and split into its parts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from whiflash.bench.cluster_process import Part, Parts, write_config
from whiflash.bench.prompts import all_prompts
from whiflash.bench.remote_measure import RemoteCost, compare
from whiflash.bench.runs import cold_request
from whiflash.chat.format import ChatFormat
from whiflash.config import EngineConfig
from whiflash.core.costs import CostCurve
from whiflash.core.errors import WhiFlashError
from whiflash.core.params import GenerationRequest
from whiflash.engine.build import EngineParts, build_parts
from whiflash.engine.ticket import Ticket
from whiflash.rpc.following_drafter import FollowingTapDrafter
from whiflash.rpc.remote_policy import LATE, REMOTE, RemotePolicy
from whiflash.serving.remote.outside import RemoteParts

_UP_S, _MAX_STEPS = 60.0, 20_000
_HOLD_MS = 1000.0
"""Every draft is waited for: a slow round that is left out would make drafting look cheap."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A drafter as `drafters` names it, in `dtype`."""

    kind: str
    spec: str
    model: str
    dtype: str

    @property
    def engine(self) -> dict[str, Any]:
        """Every round drafts with it."""
        return {
            "model": self.model, "dtype": self.dtype, "drafters": [self.spec],
            "policy": f"static:arm={self.kind}", "plain_share": 0.0, "store": "memory",
        }  # fmt: skip

    @property
    def tables(self) -> str:
        return f'[cluster.drafters.{self.kind}]\ndtype = "{self.dtype}"\n[cluster.router]'


@dataclass(frozen=True, slots=True)
class ArmResult:
    """starts_s: by role. split: milliseconds by part of a round, per number of rows. remote_share:
    of the router's decisions, at the default deadline."""

    costs: list[RemoteCost]
    split: list[dict[str, Any]]
    starts_s: dict[str, float]


class PolicyElsewhere(RemoteParts):
    """Keeps the stand-in of the policy, which is asked about its decisions."""

    def policy(self, text: str, curve: CostCurve, model: str) -> RemotePolicy | None:
        made = super().policy(text, curve, model)
        self.made = made if isinstance(made, RemotePolicy) else None
        return self.made


def measure_arm(
    parts: Parts, folder: Path, arm: Arm, loads: Sequence[int], max_tokens: int, num_pairs: int
) -> ArmResult:
    """Raises WhiFlashError if a text depends on where its drafter runs."""
    config = write_config(folder, arm.kind, arm.engine, arm.tables)
    hosts = {
        "drafter": parts.start("drafter", config, "--kind", arm.kind),
        "router": parts.start("router", config),
    }
    engine = EngineConfig.of(**arm.engine)
    costs, split = [], []
    with closing(build_parts(engine)) as local, _elsewhere(engine, arm, hosts) as (remote, policy):
        for rows in loads:
            requests = _requests(local, rows, max_tokens)
            costs.append(compare(arm.kind, local.core, remote.core, requests, num_pairs))
            split.append(_split(remote, arm, policy, requests))
    starts = {role: part.start_s for role, part in hosts.items()}
    for part in hosts.values():
        part.stop()
    return ArmResult(costs, split, starts)


@contextmanager
def _elsewhere(
    engine: EngineConfig, arm: Arm, hosts: dict[str, Part]
) -> Iterator[tuple[EngineParts, RemotePolicy]]:
    outside = PolicyElsewhere(
        frozenset([arm.kind]), has_router=True, device=engine.device, hold_ms=_HOLD_MS
    )
    outside.locate({arm.kind: hosts["drafter"].address}, hosts["router"].address)
    with closing(build_parts(engine, outside)) as parts:
        drafter, policy = parts.drafters[arm.kind], outside.made
        assert isinstance(drafter, FollowingTapDrafter)
        assert policy is not None
        end_s = time.monotonic() + _UP_S
        while not (drafter.is_up and policy.link.is_up):
            if time.monotonic() > end_s:
                raise WhiFlashError(f"{arm.kind} is not reached: {drafter.link.problem}")
            parts.core.step()
            time.sleep(0.02)
        yield parts, policy


def _requests(parts: EngineParts, rows: int, max_tokens: int) -> list[GenerationRequest]:
    chat = ChatFormat.for_model(parts.folder, parts.config.model)
    prompts = [p for p in all_prompts() if p.kind == "chat"]
    texts = [chat.render(prompts[n % len(prompts)].messages, None) for n in range(rows)]
    return [
        cold_request(parts.tokenizer.encode(text), max_tokens, None, ignore_eos=True)
        for text in texts
    ]


def _split(
    parts: EngineParts, arm: Arm, policy: RemotePolicy, requests: Sequence[GenerationRequest]
) -> dict[str, Any]:
    """Medians over steps that drafted and prefilled nothing."""
    drafter, core = parts.drafters[arm.kind], parts.core
    assert isinstance(drafter, FollowingTapDrafter)
    before = dict(policy.decisions)
    for request in requests:
        core.submit(Ticket(request, 7))
    steps = []
    for _ in range(_MAX_STEPS):
        if not core.step():
            break
        cost = core.last_cost
        if cost is None or not cost.was_decode_only or cost.was_plain:
            continue
        waited = cost.draft_ms.get(arm.kind, 0.0)
        host = min(drafter.host_ms, waited)
        caught_up = sum(ms for _, ms in cost.catch_up.values())
        known = cost.look_ms + waited + caught_up + cost.verify_ms
        steps.append(
            {"route": cost.look_ms, "transport": waited - host, "draft": host,
             "catch_up": caught_up, "verify": cost.verify_ms, "commit": cost.total_ms - known,
             "total": cost.total_ms}
        )  # fmt: skip
    if not steps:
        raise WhiFlashError("no step drafted; take longer answers")
    taken = {name: n - before.get(name, 0) for name, n in policy.decisions.items()}
    total = sum(taken.values())
    found: dict[str, Any] = {name: median(step[name] for step in steps) for name in steps[0]}
    return found | {
        "arm": arm.kind, "rows": len(requests), "steps": len(steps),
        "remote_share": taken.get(REMOTE, 0) / total, "late_share": taken.get(LATE, 0) / total,
        "deadline_ms": 1e3 * policy.deadline_s,
    }  # fmt: skip
