"""Demo sessions with scripted texts: calls that work, calls that do not, and where turns end."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from whiflash.chat.format import ChatFormat
from whiflash.chat.messages import ParsedMessage, ToolCall
from whiflash.cli.demo.passes import FIRST_PASS, SECOND_PASS
from whiflash.cli.demo.scenarios import Example, Kind, Scenario, tool_call
from whiflash.cli.demo.session import (
    MAX_FAILED_STEPS,
    MAX_STEPS,
    AgentSession,
    example_messages,
    run_call,
)
from whiflash.cli.demo.tools import TOOLS, World
from whiflash.core.results import FinishReason

CHAT = ChatFormat.for_model(Path("no-such-folder"), "smollm2-135m")
KIND = Kind(
    "stock",
    "You count.",
    ("set_stock",),
    (Example("Nuts: 3.", (tool_call("set_stock", item="nut", pieces=3),), "Done."),),
    World(stock={"nut": 1}),
)


@dataclass(frozen=True)
class Answer:
    text: str
    finish_reason: FinishReason = FinishReason.STOP


@dataclass
class Script:
    """Gives its answers one after the other, the last one for ever."""

    answers: Sequence[Answer]
    prompts: list[str] = field(default_factory=list)

    def __call__(self, prompt: str, max_tokens: int) -> Answer:
        assert max_tokens > 0
        self.prompts.append(prompt)
        return self.answers[min(len(self.prompts), len(self.answers)) - 1]


def scenario(*turns: str) -> Scenario:
    return Scenario("stock", KIND, turns, World(stock={"bolt": 5}))


def block(**values: object) -> Answer:
    arguments = json.dumps(values)
    return Answer(
        f'<tool_call>\n{{"name": "set_stock", "arguments": {arguments}}}\n</tool_call>'
    )  # fmt: skip


def test_calls_are_run_and_their_results_come_back() -> None:
    script = Script([block(item="bolt", pieces=7), Answer("Now 7."), Answer("Nothing.")])
    session = AgentSession(scenario("Bolts: 7.", "And now?"), CHAT, script)
    steps = list(session.run())
    assert [(s.turn, s.step, s.written.text) for s in steps] == [
        (0, 0, block(item="bolt", pieces=7).text),
        (0, 1, "Now 7."),
        (1, 0, "Nothing."),
    ]
    assert session.world.stock == {"bolt": 7}
    result = '{"item": "bolt", "before": 5, "pieces": 7}'
    assert [(o.result, o.is_error) for o in steps[0].outcomes] == [(result, False)]
    assert [step.prompt for step in steps] == script.prompts
    turn = f"{block(item='bolt', pieces=7).text}<|im_end|>\n<|im_start|>user\n"
    assert script.prompts[1] == (
        f"{script.prompts[0]}{turn}<tool_response>\n{result}\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_examples_show_what_the_tools_really_say() -> None:
    messages = example_messages(scenario("x"))
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[3]["content"] == '{"item": "nut", "before": 1, "pieces": 3}'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer("<tool_call>\nset_stock(7)\n</tool_call>"), "not a call: expected {, got 's'"),
        (Answer('<tool_call>\n{"name": "set_stock", "argu'), "not a call: the text ends inside"),
        (
            Answer('<tool_call>\n{"name": "set_stock", "argu', FinishReason.LENGTH),
            "not a call: the call was cut off",
        ),
        (
            Answer('<tool_call>\n{"name": "open_ticket", "arguments": {}}\n</tool_call>'),
            "no tool open_ticket; there are set_stock",
        ),
        (block(item="bolt"), "pieces is missing"),
        (block(item="bolt", pieces="7"), "pieces must be of type integer"),
        (block(item="bolt", pieces=True), "pieces must be of type integer"),
        (block(item="bolt", pieces=7, unit="box"), "set_stock has no argument unit"),
        (block(item="nail", pieces=7), "no item nail"),
    ],
)
def test_a_call_that_cannot_be_run_gets_an_error_for_a_result(answer: Answer, error: str) -> None:
    script = Script([answer, Answer("Sorry.")])
    session = AgentSession(scenario("Bolts: 7."), CHAT, script)
    steps = list(session.run())
    assert (steps[0].num_errors, steps[0].is_failed, steps[1].num_errors) == (1, True, 0)
    assert steps[0].outcomes[0].result.startswith(f"error: {error}")
    assert session.world.stock == {"bolt": 5}
    assert script.prompts[1].startswith(f"{script.prompts[0]}{answer.text}<|im_end|>\n")
    assert f"<tool_response>\nerror: {error}" in script.prompts[1]


def test_one_bad_call_beside_a_good_one_is_answered_alone() -> None:
    text = block(item="bolt", pieces=7).text + "\n<tool_call>oops</tool_call>"
    steps = list(AgentSession(scenario("x"), CHAT, Script([Answer(text), Answer("Done.")])).run())
    assert [outcome.is_error for outcome in steps[0].outcomes] == [False, True]
    assert not steps[0].is_failed


def test_a_turn_ends_when_calls_go_on_for_ever_or_only_fail() -> None:
    good, bad = block(item="bolt", pieces=7), block(item="nail", pieces=7)
    for answer, most in ((good, MAX_STEPS), (bad, MAX_FAILED_STEPS)):
        steps = list(AgentSession(scenario("a", "b"), CHAT, Script([answer])).run())
        assert [step.turn for step in steps] == [0] * most + [1] * most


def test_two_sessions_of_one_scenario_never_see_each_other() -> None:
    script = [block(item="bolt", pieces=7), Answer("Done.")]
    work = scenario("x")
    first = list(AgentSession(work, CHAT, Script(script)).run())
    second = list(AgentSession(work, CHAT, Script(script)).run())
    assert first == second
    assert work.world.stock == {"bolt": 5}


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_tool_schema_lists_what_the_tool_takes(name: str) -> None:
    function = TOOLS[name].schema()["function"]
    assert function["name"] == name
    assert set(function["parameters"]["properties"]) == set(TOOLS[name].parameters)


def run_tool(world: World, name: str, **values: object) -> str:
    return run_call(ToolCall(name, json.dumps(values)), world, (name,)).result


def test_tools_do_what_they_say() -> None:
    world = World(files={"a.py": "x\ny"}, settings={"s.json": {"a": 1, "b": 2}}, tickets={7: {}})
    assert run_tool(world, "write_file", path="a.py", text="x\nz") == (
        '{"saved": "a.py", "changed_lines": 1}'
    )
    assert world.files["a.py"] == "x\nz"
    assert run_tool(world, "save_settings", path="s.json", settings={"a": 1, "c": 3}) == (
        '{"saved": "s.json", "changed": ["b", "c"]}'
    )
    assert run_tool(world, "save_settings", path="t.json", settings={}) == (
        "error: no settings t.json"
    )
    ticket = {"title": "t", "team": "network", "priority": "low"}
    assert run_tool(world, "open_ticket", **ticket) == (
        '{"ticket": 8, "team": "network", "priority": "low"}'
    )
    slot = {"day": "Monday", "time": "10:00", "room": "Red"}
    booked = run_tool(world, "book_room", title="talk", **slot)
    assert json.loads(booked) == {"booked": "talk", **slot}
    assert run_tool(world, "book_room", title="other", **slot) == (
        "error: room Red is taken by the talk"
    )


@pytest.mark.parametrize("work", FIRST_PASS + SECOND_PASS, ids=lambda work: work.name)
def test_scenario_can_be_done(work: Scenario) -> None:
    """The examples' calls run but for the taken room, and the first prompt can be written."""
    assert 2 <= len(work.turns) <= 4
    world = copy.deepcopy(work.kind.world)
    for example in work.kind.examples:
        for name, arguments in example.calls:
            outcome = run_call(ToolCall(name, arguments), world, work.kind.tools)
            assert not outcome.is_error or "taken" in outcome.result
            written = ParsedMessage("", calls=(ToolCall(name, arguments),)).to_history()
            assert arguments in CHAT.render([written], [TOOLS[name].schema()])
    script = Script([Answer("Done.")])
    assert len(list(AgentSession(work, CHAT, script).run())) == len(work.turns)


def test_the_second_pass_has_the_same_kinds_with_other_turns() -> None:
    for first, second in zip(FIRST_PASS, SECOND_PASS, strict=True):
        assert first.kind is second.kind
        assert not set(first.turns) & set(second.turns)
