"""Runs planned requests and compares every text with the plain loop's: the exactness gate
(design.md 5)."""

from __future__ import annotations

from whiflash.core.params import GenerationRequest
from whiflash.core.results import Completion, FinishReason
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket
from whiflash.testing.plain import PlainAnswer
from whiflash.testing.requests import Planned

MAX_STEPS = 5_000


def run_planned(
    core: EngineCore, planned: list[Planned], check_every: int = 7
) -> list[dict[int, Completion]]:
    """Steps the core until all are done, with a shadow proposal after each step if it makes any;
    completions by choice, per planned request."""
    for step in range(MAX_STEPS):
        for plan in planned:
            if _is_due(plan, step):
                plan.ticket = Ticket(plan.request, plan.seed, grammar=plan.grammar)
                core.submit(plan.ticket)
            if plan.ticket is not None and plan.cancels_at_step == step:
                plan.ticket.cancel()
        has_worked = core.step()
        core.shadows.run_one()
        if step % check_every == 0:
            core.check_integrity()
        if not has_worked and all(plan.ticket is not None for plan in planned):
            core.check_integrity()
            return [_completions(plan) for plan in planned]
    raise AssertionError(f"the engine did not finish within {MAX_STEPS} steps")


def _is_due(plan: Planned, step: int) -> bool:
    if plan.ticket is not None or step < plan.arrives_at_step:
        return False
    return plan.after is None or (plan.after.ticket is not None and plan.after.ticket.is_done)


def _completions(plan: Planned) -> dict[int, Completion]:
    assert plan.ticket is not None
    assert plan.ticket.is_done, "a request was lost"
    return {c.index: c for c in plan.ticket.result().choices}


def require_same_text(
    plan: Planned, completions: dict[int, Completion], answers: list[PlainAnswer]
) -> int:
    """Every choice equals the plain loop's; a cancelled one is a prefix of it. Returns the number
    of choices compared. Raises AssertionError naming the first difference."""
    for index, want in enumerate(answers):
        got = completions[index]
        where = f"seed {plan.seed}, choice {index} of {plan.request}: {got} instead of {want}"
        if got.finish_reason is FinishReason.CANCELLED:
            assert got.token_ids == want.token_ids[: len(got.token_ids)], where
            continue
        assert got.token_ids == want.token_ids, where
        assert got.text == want.text, where
        assert got.finish_reason is want.finish_reason, where
        _require_usage(plan.request, got)
    return len(answers)


def _require_usage(request: GenerationRequest, got: Completion) -> None:
    """The identity of design.md 2: the first token, then emitted per round, ending ones apart."""
    usage = got.usage
    per_arm = usage.arms.values()
    emitted = sum(arm.emitted + arm.ending_emitted for arm in per_arm)
    fresh = len(got.token_ids) - len(request.forced_ids)
    assert usage.completion_tokens == fresh, (usage, fresh)
    assert emitted + (fresh > 0) == fresh, (usage, fresh)
    assert usage.rounds == sum(arm.rounds + arm.ending_rounds for arm in per_arm)
    for arm in per_arm:
        assert arm.emitted == arm.rounds + arm.accepted
        assert sum(arm.accepted_at) == arm.accepted
    if request.params.logprobs is not None:
        assert len(got.logprobs) == fresh
