"""Constrained calls against the parser that reads them, on SmolLM2's vocabulary."""

from __future__ import annotations

import dataclasses
import json

import pytest

from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.chat.hermes import HermesParser, write
from whiflash.chat.messages import ParsedMessage, ToolCall
from whiflash.core.constraint import ConstraintSpec, JsonAnswer, Reasoning, ToolCalls, ToolSchema
from whiflash.core.errors import InvalidRequestError
from whiflash.core.results import FinishReason
from whiflash.models.tokenizer import HFTokenizer

FIND = ToolSchema("find", json.dumps({
    "type": "object", "properties": {"text": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["text"],
}))  # fmt: skip
NOW = ToolSchema("now")
ODD = ToolSchema('a "tool" \\ é', '{"type": "object", "properties": {}}')
TOOLS = (FIND, NOW, ODD)
CALLS = (
    ToolCall("find", '{"text": "a </tool_call> \\"b\\"", "limit": 3}'),
    ToolCall("now", '{"any": [{"thing": null}]}'),
    ToolCall('a "tool" \\ é', "{}"),
)


def accepts(
    compiler: GrammarCompiler, tokenizer: HFTokenizer, spec: ConstraintSpec, text: str
) -> bool:
    state = compiler.compile(spec).start()
    is_allowed = all(state.advance(token) for token in tokenizer.encode(text))
    return is_allowed and state.advance(tokenizer.eos_id or 2) and state.is_ended


def parsed(text: str, reasoning: Reasoning = Reasoning.NONE) -> ParsedMessage:
    parser = HermesParser(
        has_reasoning=reasoning is not Reasoning.NONE, in_reasoning=reasoning is Reasoning.OPEN
    )
    parser.feed(text)
    parser.finish(FinishReason.STOP)
    return parser.message()


REQUIRED = ToolCalls(TOOLS, is_required=True)
AUTO = ToolCalls(TOOLS)


@pytest.mark.parametrize("calls", [CALLS[:1], CALLS[1:2], CALLS[2:], CALLS])
def test_what_the_template_writes_is_allowed_and_read_back(
    smol: HFTokenizer, smol_compiler: GrammarCompiler, calls: tuple[ToolCall, ...]
) -> None:
    text = write("", calls)
    for spec in (REQUIRED, AUTO):
        assert accepts(smol_compiler, smol, spec, text)
    assert parsed(text).calls == calls
    assert accepts(smol_compiler, smol, AUTO, write("Let me see.", calls) + "\nDone.")
    assert not accepts(smol_compiler, smol, REQUIRED, write("Let me see.", calls))


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "<tool_call>", "<tool_call>\n", write("", CALLS)[:-1],
        '<tool_call>\n{"name": "find", "arguments": {"limit": 3}}\n</tool_call>',
        '<tool_call>\n{"name": "fin", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "now", "arguments": []}\n</tool_call>',
        '<tool_call>\n{"name": "now"}\n</tool_call>', write("", CALLS) + "\nbye",
    ],
)  # fmt: skip
def test_what_is_no_call_is_not_allowed_where_one_is_required(
    smol: HFTokenizer, smol_compiler: GrammarCompiler, text: str
) -> None:
    assert not accepts(smol_compiler, smol, REQUIRED, text)


@pytest.mark.parametrize(
    "text",
    ["", "hello", "a < b, <tool> and </tool_call>", "<tool_cal", "<think>x</think> y", "<<tool_"],
)
def test_free_text_is_free_until_the_marker(
    smol: HFTokenizer, smol_compiler: GrammarCompiler, text: str
) -> None:
    assert accepts(smol_compiler, smol, AUTO, text)
    assert parsed(text).calls == ()
    broken = text + '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>'
    assert not accepts(smol_compiler, smol, AUTO, broken)
    assert accepts(smol_compiler, smol, AUTO, text + "\n" + write("", CALLS[1:2]))


def test_named_single_and_parallel(smol: HFTokenizer, smol_compiler: GrammarCompiler) -> None:
    one, two = write("", CALLS[1:2]), write("", (CALLS[1], CALLS[1]))
    other = write("", CALLS[:1])
    named = ToolCalls(TOOLS, named="now")
    single = ToolCalls(TOOLS, is_required=True, is_single=True)
    allowed = {
        spec: [accepts(smol_compiler, smol, spec, text) for text in (one, two, other, "hi " + one)]
        for spec in (named, single, ToolCalls(TOOLS, is_single=True), AUTO)
    }
    assert list(allowed.values()) == [
        [True, True, False, False],
        [True, False, True, False],
        [True, False, True, True],
        [True, True, True, True],
    ]
    assert not accepts(smol_compiler, smol, ToolCalls(TOOLS, is_single=True), one + " and")


def test_json_or_calls(smol: HFTokenizer, smol_compiler: GrammarCompiler) -> None:
    spec = ToolCalls(TOOLS, otherwise=JsonAnswer('{"type": "object", "required": []}'))
    for text, is_allowed in (('{"a": 1}', True), (write("", CALLS), True), ("hello", False)):
        assert accepts(smol_compiler, smol, spec, text) is is_allowed


@pytest.mark.parametrize("spec", [REQUIRED, JsonAnswer()])
def test_the_form_begins_behind_the_reasoning(
    smol: HFTokenizer, smol_compiler: GrammarCompiler, spec: ToolCalls | JsonAnswer
) -> None:
    """vllm #34650, #36138."""
    body = write("", CALLS) if spec is REQUIRED else '{"a": "</think>"}'
    opened = dataclasses.replace(spec, reasoning=Reasoning.OPEN)
    optional = dataclasses.replace(spec, reasoning=Reasoning.OPTIONAL)
    thought = "Hm { </thin <tool> so.\n</think>\n\n"
    table = [
        (opened, thought + body, True), (opened, body, False), (opened, "Hm", False),
        (opened, "Hm" + write("", CALLS), False), (opened, thought + "x", False),
        (optional, "<think>" + thought + body, True), (optional, body, True),
        (optional, thought + body, False), (spec, "<think>" + thought + body, False),
    ]  # fmt: skip
    for demand, text, is_allowed in table:
        assert accepts(smol_compiler, smol, demand, text) is is_allowed, text
    message = parsed("<think>" + thought + body, Reasoning.OPTIONAL)
    assert message.reasoning == "Hm { </thin <tool> so."
    assert message.calls == (CALLS if spec is REQUIRED else ())


@pytest.mark.parametrize(
    ("spec", "why", "param"),
    [
        (ToolCalls(()), "1 to 128 tools", "tools"),
        (ToolCalls((NOW, NOW)), "the same name", "tools"),
        (ToolCalls((ToolSchema(""),)), "1 to 128", "tools"),
        (ToolCalls((ToolSchema("a\nb"),)), "printable", "tools"),
        (ToolCalls((ToolSchema("\ud800"),)), "printable", "tools"),
        (ToolCalls(TOOLS, named="nobody"), "'nobody' is not among", "tool_choice"),
        (ToolCalls((ToolSchema("f", '{"not": {}}'),)), "parameters of f: 'not' at #", "tools"),
        (ToolCalls((ToolSchema("f", " " * 100_000),)), "parameters of f", "tools"),
        (ToolCalls(TOOLS, is_required=True, otherwise=JsonAnswer()), "nothing else", "tools"),
    ],
)  # fmt: skip
def test_demands_that_cannot_be_met_are_refused(
    toy_compiler: GrammarCompiler, spec: ToolCalls, why: str, param: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        toy_compiler.compile(spec)
    assert why in str(caught.value), caught.value
    assert caught.value.param == param
