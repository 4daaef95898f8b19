"""Runs scenarios twice, drafting and plain in alternation, and adds up what each cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whiflash.chat.format import ChatFormat
from whiflash.cli.demo.scenarios import Scenario
from whiflash.cli.demo.session import AgentSession, StepResult
from whiflash.core.params import SamplingParams
from whiflash.core.results import Completion
from whiflash.core.rows import NONE
from whiflash.core.usage import ArmUsage

if TYPE_CHECKING:
    from whiflash.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class SessionPair:
    """One scenario, run by both; `drafted[i]` and `plain[i]` are the same step."""

    scenario: Scenario
    drafted: tuple[StepResult, ...]
    plain: tuple[StepResult, ...]

    @property
    def is_same_text(self) -> bool:
        return [_ids(step) for step in self.drafted] == [_ids(step) for step in self.plain]


@dataclass(slots=True)
class PassResult:
    """Sums over the sessions of one pass. Decode times in milliseconds, prefill not included."""

    name: str
    pairs: list[SessionPair] = field(default_factory=list)

    @property
    def is_same_text(self) -> bool:
        return all(pair.is_same_text for pair in self.pairs)

    @property
    def num_errors(self) -> int:
        """Calls of the drafting sessions that got an error for a result."""
        return sum(step.num_errors for pair in self.pairs for step in pair.drafted)

    def completions(self, is_drafted: bool) -> list[Completion]:
        chosen = (pair.drafted if is_drafted else pair.plain for pair in self.pairs)
        return [completion_of(step) for steps in chosen for step in steps]

    def decode_ms(self, is_drafted: bool) -> float:
        return sum(c.usage.decode_ms for c in self.completions(is_drafted))

    @property
    def num_tokens(self) -> int:
        return sum(c.usage.completion_tokens for c in self.completions(True))

    @property
    def num_rounds(self) -> int:
        return sum(c.usage.rounds for c in self.completions(True))

    @property
    def ratio(self) -> float:
        """The twin's decode time over the drafting run's."""
        return self.decode_ms(False) / max(self.decode_ms(True), 1e-9)

    def arms(self) -> dict[str, ArmUsage]:
        """Rounds, emitted and accepted tokens by arm."""
        total: dict[str, ArmUsage] = {}
        for completion in self.completions(True):
            for name, usage in completion.usage.arms.items():
                into = total.setdefault(name, ArmUsage())
                for key in ("rounds", "emitted", "drafted", "accepted", "ending_rounds",
                            "ending_emitted", "discarded"):  # fmt: skip
                    setattr(into, key, getattr(into, key) + getattr(usage, key))
        return total


def completion_of(step: StepResult) -> Completion:
    """The engine's answer behind a step."""
    written = step.written
    assert isinstance(written, Completion)
    return written


def _ids(step: StepResult) -> tuple[int, ...]:
    return completion_of(step).token_ids


class PassRunner:
    """`show` sees every step of the drafting sessions as it is done."""

    def __init__(
        self, engine: Engine, chat: ChatFormat, show: Callable[[Scenario, StepResult], None]
    ) -> None:
        self._engine = engine
        self._chat = chat
        self._show = show
        self._turn = itertools.count()

    def run(self, name: str, scenarios: Sequence[Scenario]) -> PassResult:
        """All sessions of one pass, one after the other."""
        return PassResult(name, [self._pair(scenario) for scenario in scenarios])

    def _pair(self, scenario: Scenario) -> SessionPair:
        """Both have prefix reuse, each in a namespace of its own, so that neither helps the
        other. Their order alternates, since the machine's speed drifts."""
        is_first = next(self._turn) % 2 == 0
        if is_first:
            drafted = self._session(scenario, None)
            plain = self._session(scenario, NONE)
        else:
            plain = self._session(scenario, NONE)
            drafted = self._session(scenario, None)
        return SessionPair(scenario, drafted, plain)

    def _session(self, scenario: Scenario, drafter: str | None) -> tuple[StepResult, ...]:
        namespace = "demo" if drafter is None else "demo-plain"

        def generate(prompt: str, max_tokens: int) -> Completion:
            params = SamplingParams(max_tokens=max_tokens)
            answer = self._engine.generate(
                prompt, params, namespace=namespace, drafter=drafter, run_id=scenario.name
            )
            return answer.choices[0]

        steps: list[StepResult] = []
        for step in AgentSession(scenario, self._chat, generate).run():
            steps.append(step)
            if drafter is None:
                self._show(scenario, step)
        return tuple(steps)
