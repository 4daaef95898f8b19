"""Runs scenarios twice, drafting and plain in alternation, and adds up what each cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from whiflash.chat.format import ChatFormat
from whiflash.cli.demo.passes import PassPlan
from whiflash.cli.demo.results import PassResult
from whiflash.cli.demo.scenarios import Scenario
from whiflash.cli.demo.session import AgentSession, StepResult
from whiflash.core.params import SamplingParams
from whiflash.core.results import Completion
from whiflash.core.rows import NONE
from whiflash.core.usage import ArmUsage
from whiflash.trajectories.scope import Owner

if TYPE_CHECKING:
    from whiflash.engine.engine import Engine

Steps = tuple[StepResult, ...]
Show = Callable[[Scenario, StepResult], None]


@dataclass(frozen=True, slots=True)
class SessionPair:
    """One scenario, run by both; `drafted[i]` and `plain[i]` are the same step. No `plain` where
    the pass has no twin."""

    scenario: Scenario
    drafted: Steps
    plain: Steps


def completion_of(step: StepResult) -> Completion:
    """The engine's answer behind a step."""
    written = step.written
    assert isinstance(written, Completion)
    return written


def summed(plan: PassPlan, pairs: Iterable[SessionPair], known_tokens: int) -> PassResult:
    """What the sessions of a pass cost together. known_tokens: in the store when it began."""
    pairs = tuple(pairs)
    drafted = [completion_of(step) for pair in pairs for step in pair.drafted]
    plain = [completion_of(step) for pair in pairs for step in pair.plain]
    return PassResult(
        key=plan.key,
        title=plan.title,
        known_tokens=known_tokens,
        num_tokens=sum(c.usage.completion_tokens for c in drafted),
        num_rounds=sum(c.usage.rounds for c in drafted),
        arms=summed_arms(one.usage.arms for one in drafted),
        decode_ms=sum(c.usage.decode_ms for c in drafted),
        twin_decode_ms=sum(c.usage.decode_ms for c in plain),
        num_errors=sum(step.num_errors for pair in pairs for step in pair.drafted),
        texts={pair.scenario.name: _ids(pair.drafted) for pair in pairs},
        twin_texts={pair.scenario.name: _ids(pair.plain) for pair in pairs if pair.plain},
    )


def _ids(steps: Steps) -> tuple[tuple[int, ...], ...]:
    return tuple(completion_of(step).token_ids for step in steps)


def summed_arms(parts: Iterable[Mapping[str, ArmUsage]]) -> dict[str, ArmUsage]:
    """Rounds, emitted and accepted tokens by arm."""
    total: dict[str, ArmUsage] = {}
    counts = [one.name for one in fields(ArmUsage) if not one.name.endswith("_at")]
    for part in parts:
        for name, usage in part.items():
            into = total.setdefault(name, ArmUsage())
            for count in counts:
                setattr(into, count, getattr(into, count) + getattr(usage, count))
    return total


class PassRunner:
    """Runs passes on one engine. `owner` is whose trajectories they draft from; `show` sees every
    step of the drafting sessions as it is done."""

    def __init__(self, engine: Engine, chat: ChatFormat, owner: Owner, show: Show) -> None:
        self._engine = engine
        self._chat = chat
        self._owner = owner
        self._show = show
        self._turn = itertools.count()

    def namespace(self, plan: PassPlan) -> str:
        """Plain name of the namespace that a pass drafts from."""
        return Owner(self._owner.tenant, plan.key).name if plan.is_apart else self._owner.name

    def run(self, plan: PassPlan, known_tokens: int) -> PassResult:
        """All sessions of one pass, one after the other."""
        return summed(plan, [self._pair(plan, one) for one in plan.scenarios], known_tokens)

    def _pair(self, plan: PassPlan, scenario: Scenario) -> SessionPair:
        """Both have prefix reuse within the session, each in a namespace of its own, so that
        neither helps the other. Their order alternates, since the machine's speed drifts."""
        if not plan.has_twin:
            return SessionPair(scenario, self._session(plan, scenario, None), ())
        is_first = next(self._turn) % 2 == 0
        if is_first:
            drafted = self._session(plan, scenario, None)
            plain = self._session(plan, scenario, NONE)
        else:
            plain = self._session(plan, scenario, NONE)
            drafted = self._session(plan, scenario, None)
        return SessionPair(scenario, drafted, plain)

    def _session(self, plan: PassPlan, scenario: Scenario, drafter: str | None) -> Steps:
        namespace = self.namespace(plan)
        if drafter is not None:
            namespace = Owner(self._owner.tenant, f"{plan.key}-plain").name

        def generate(prompt: str, max_tokens: int) -> Completion:
            answer = self._engine.generate(
                prompt,
                SamplingParams(max_tokens=max_tokens),
                namespace=namespace,
                drafter=drafter,
                run_id=scenario.name,
                agent=scenario.kind.name,
                store=plan.teaches and drafter is None,
            )
            return answer.choices[0]

        steps: list[StepResult] = []
        for step in AgentSession(scenario, self._chat, generate).run():
            steps.append(step)
            if drafter is None:
                self._show(scenario, step)
        return tuple(steps)
