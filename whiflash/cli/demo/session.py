"""Drives one agent session: prompt, text, calls, results, until the user's turns are done."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from whiflash.chat.format import ChatFormat
from whiflash.chat.messages import BrokenCall, ParsedMessage, ToolCall
from whiflash.cli.demo.scenarios import Scenario
from whiflash.cli.demo.tools import TOOLS, ToolError, World
from whiflash.core.errors import InvalidRequestError
from whiflash.core.results import FinishReason

MAX_STEPS = 4
MAX_TOKENS = 120
MAX_FAILED_STEPS = 2


class Written(Protocol):
    """What a generation gives back; `core.results.Completion` is one."""

    @property
    def text(self) -> str: ...

    @property
    def finish_reason(self) -> FinishReason: ...


Generate = Callable[[str, int], Written]


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A call that the model wrote and what came of it: the tool's result, or an error."""

    name: str
    arguments: str
    result: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class StepResult:
    """One generation of the session. `turn` and `step` count from 0; `user` is the turn's text.
    `written` is what `generate` returned."""

    turn: int
    step: int
    user: str
    prompt: str
    written: Written
    message: ParsedMessage
    outcomes: tuple[ToolOutcome, ...]

    @property
    def num_errors(self) -> int:
        """Calls that got an error for a result."""
        return sum(outcome.is_error for outcome in self.outcomes)

    @property
    def is_failed(self) -> bool:
        """There were calls, and all of them got an error."""
        return bool(self.outcomes) and self.num_errors == len(self.outcomes)


class AgentSession:
    """A scenario at work. `generate(prompt, max_tokens)` writes; everything else is done here, on
    a world of its own: two sessions of one scenario never see each other."""

    def __init__(self, scenario: Scenario, chat: ChatFormat, generate: Generate) -> None:
        self.scenario = scenario
        self.world = copy.deepcopy(scenario.world)
        self._chat = chat
        self._generate = generate
        self._tools = [TOOLS[name].schema() for name in scenario.kind.tools]
        self._messages = example_messages(scenario)

    def run(self) -> Iterator[StepResult]:
        """The session, one generation at a time. A turn ends with a text without calls, after
        MAX_STEPS generations, or when MAX_FAILED_STEPS in a row brought nothing but errors."""
        for turn, user in enumerate(self.scenario.turns):
            self._messages.append({"role": "user", "content": user})
            num_failed = 0
            for step in range(MAX_STEPS):
                result = self._step(turn, step, user)
                yield result
                num_failed = num_failed + 1 if result.is_failed else 0
                if not result.outcomes or num_failed == MAX_FAILED_STEPS:
                    break

    def _step(self, turn: int, step: int, user: str) -> StepResult:
        prompt = self._chat.render(self._messages, self._tools)
        written = self._generate(prompt, MAX_TOKENS)
        message = self._chat.parse(prompt, written.text, written.finish_reason)
        self._messages.append(message.to_history())
        outcomes = tuple(self._outcomes(message))
        for outcome in outcomes:
            self._messages.append({"role": "tool", "content": outcome.result})
        return StepResult(turn, step, user, prompt, written, message, outcomes)

    def _outcomes(self, message: ParsedMessage) -> Iterator[ToolOutcome]:
        for call in message.calls:
            yield run_call(call, self.world, self.scenario.kind.tools)
        for broken in message.broken:
            yield _refused(broken)
        if message.is_partial:
            yield _refused(BrokenCall(message.text, "the call was cut off"))


def run_call(call: ToolCall, world: World, offered: tuple[str, ...]) -> ToolOutcome:
    """Runs one call; whatever is wrong with it becomes its result."""
    try:
        if call.name not in offered:
            raise ToolError(f"no tool {call.name}; there are {', '.join(offered)}")
        result = TOOLS[call.name].call(world, call.values())
    except (ToolError, InvalidRequestError) as error:
        return ToolOutcome(call.name, call.arguments, _error_text(str(error)), True)
    return ToolOutcome(call.name, call.arguments, result, False)


def example_messages(scenario: Scenario) -> list[dict[str, Any]]:
    """The system message and the kind's examples, with the results that the tools really give."""
    kind = scenario.kind
    world = copy.deepcopy(kind.world)
    messages: list[dict[str, Any]] = [{"role": "system", "content": kind.system}]
    for example in kind.examples:
        messages.append({"role": "user", "content": example.user})
        calls = tuple(ToolCall(name, arguments) for name, arguments in example.calls)
        messages.append(ParsedMessage("", calls=calls).to_history())
        for call in calls:
            result = run_call(call, world, kind.tools).result
            messages.append({"role": "tool", "content": result})
        messages.append({"role": "assistant", "content": example.answer})
    return messages


def _refused(broken: BrokenCall) -> ToolOutcome:
    return ToolOutcome("", broken.text, _error_text(f"not a call: {broken.reason}"), True)


def _error_text(reason: str) -> str:
    return f"error: {reason}"
