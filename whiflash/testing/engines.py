"""Small engines around a target, stepped by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import Drafter, Policy
from whiflash.core.results import Completion
from whiflash.engine.core import EngineCore, EngineLimits
from whiflash.engine.publish import Publisher
from whiflash.engine.ticket import Ticket
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import make_policy
from whiflash.routing.router import Router
from whiflash.target.load import LoadedTarget

MAX_STEPS = 3000


def small_core(
    loaded: LoadedTarget,
    drafters: Mapping[str, Drafter] | None = None,
    policy: str | Policy = "static",
    **limits: float,
) -> EngineCore:
    """An engine without logs; `policy` by its name or as it is, `limits` fields of EngineLimits."""
    costs = CostModel(loaded.target.verify_curve)
    made = make_policy(policy, costs) if isinstance(policy, str) else policy
    router = Router(made, costs, plain_share=0.0)
    sizes: dict[str, Any] = {
        "memory_bytes": 64 << 20,
        "max_batch": 8,
        "max_queue": 32,
        "prefill_chunk": 16,
        "max_draft_nodes": 8,
        "max_draft_depth": 8,
        "draft_window": 1024,
        **limits,
    }
    publisher = Publisher("toy", None, None)
    return EngineCore(
        loaded.target, loaded.tokenizer, drafters or {}, router, publisher, EngineLimits(**sizes)
    )


def drain(core: EngineCore) -> None:
    """Steps until nothing is left to do, checking integrity after each step."""
    for _ in range(MAX_STEPS):
        if not core.step():
            return
        core.check_integrity()
    raise AssertionError("the engine did not become idle")


def run(core: EngineCore, *requests: GenerationRequest, seed: int = 7) -> list[list[Completion]]:
    """Submits all at once and drains; choices per request."""
    tickets = [Ticket(request, seed) for request in requests]
    for ticket in tickets:
        core.submit(ticket)
    drain(core)
    return [list(ticket.result().choices) for ticket in tickets]


def ids(core: EngineCore, requests: Sequence[GenerationRequest]) -> list[tuple[int, ...]]:
    """Runs them; the tokens of every choice."""
    return [choice.token_ids for choices in run(core, *requests) for choice in choices]


def drafted(core: EngineCore, requests: Sequence[GenerationRequest], arm: str) -> int:
    """Runs them; the tokens that `arm` drafted for all of them."""
    done = run(core, *requests)
    return sum(choice.usage.arm(arm).drafted for choices in done for choice in choices)
