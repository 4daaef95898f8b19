"""The hermes parser: every recorded case at every cut, and the rules for text that is not one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.chat.events import EventKind, ParseEvent
from whiflash.chat.hermes import HermesParser
from whiflash.chat.messages import ParsedMessage
from whiflash.core.results import FinishReason

DATA = Path(__file__).parents[2] / "data" / "tool_formats" / "hermes_cases.jsonl"
CASES = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()][1:]
CALL = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


def parser_for(case: dict[str, Any]) -> HermesParser:
    tail = case["prompt_tail"].rstrip()
    return HermesParser(
        has_reasoning=case["format"] == "qwen3" and not tail.endswith("</think>"),
        in_reasoning=tail.endswith("<think>"),
    )


def run(
    parser: HermesParser, pieces: Iterable[str], reason: FinishReason = FinishReason.STOP
) -> tuple[ParsedMessage, dict[Any, str]]:
    events: list[ParseEvent] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.finish(reason)
    joined: dict[Any, str] = {}
    for event in events:
        key = (event.kind, event.call)
        joined[key] = joined.get(key, "") + event.text
    return parser.message(), joined


def parse(text: str, reason: FinishReason = FinishReason.STOP) -> ParsedMessage:
    return run(HermesParser(), [text], reason)[0]


def cuts(text: str) -> Iterable[list[str]]:
    yield list(text)
    for at in range(len(text) + 1):
        yield [text[:at], text[at:]]
    for width in range(1, 17):
        yield [text[at : at + width] for at in range(0, len(text), width)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case_at_every_cut(case: dict[str, Any]) -> None:
    """Public reports: vllm #41967, #48020, #55082, sglang #31915 (calls lost at chunk borders)
    and TensorRT-LLM #16377, #8713 (several tokens in one delta)."""
    reason = FinishReason.STOP if case["stop"] else FinishReason.LENGTH
    whole = run(parser_for(case), [case["text"]], reason)
    message = whole[0]
    calls = [{"name": call.name, "arguments": call.values()} for call in message.calls]
    assert (message.reasoning, message.content) == (case["reasoning"], case["content"])
    assert (calls, message.is_partial) == (case["calls"], case["partial"])
    assert message.broken == ()
    for pieces in cuts(case["text"]):
        assert run(parser_for(case), pieces, reason) == whole


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_events_say_what_the_message_says(case: dict[str, Any]) -> None:
    reason = FinishReason.STOP if case["stop"] else FinishReason.LENGTH
    message, joined = run(parser_for(case), case["text"], reason)
    assert joined.get((EventKind.CONTENT, None), "") == message.content
    assert joined.get((EventKind.REASONING, None), "") == (message.reasoning or "")
    for number, call in enumerate(message.calls):
        assert joined[(EventKind.CALL_START, number)] == call.name
        assert joined[(EventKind.ARGUMENTS, number)] == call.arguments
        assert (EventKind.CALL_END, number) in joined


def test_arguments_stream_before_the_call_is_whole() -> None:
    parser = HermesParser()
    events = parser.feed('<tool_call>{"name": "w", "arguments": {"text": "abc')
    assert events == [
        ParseEvent(EventKind.CALL_START, "w", 0),
        ParseEvent(EventKind.ARGUMENTS, '{"text": "abc', 0),
    ]
    assert parser.feed('d"}') == [ParseEvent(EventKind.ARGUMENTS, 'd"}', 0)]


def test_content_is_held_only_while_it_may_become_a_marker() -> None:
    parser = HermesParser()
    assert parser.feed("a\n<tool") == [ParseEvent(EventKind.CONTENT, "a")]
    assert parser.feed("s") == [ParseEvent(EventKind.CONTENT, "\n<tools")]


def test_arguments_text_is_passed_through_unchanged() -> None:
    text = '{"x":1.0 ,  "e": "\\u00e9", "n": 1e3}'
    message = parse(f'<tool_call>{{"name": "f", "arguments": {text}}}</tool_call>')
    assert message.calls[0].arguments == text


def test_unknown_tools_and_missing_arguments_are_calls() -> None:
    message = parse('<tool_call>{"id": [1, {"name": 2}], "name": "nobody"}</tool_call>')
    assert [(c.name, c.arguments) for c in message.calls] == [("nobody", "{}")]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("<tool_call>\nclock()\n</tool_call>", "expected {"),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}}</tool_call>', "'}' behind"),
        ('<tool_call>{"name": "f", "arguments": {"a": 1 2}}</tool_call>', "not JSON"),
        ('<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "not JSON"),
        ('<tool_call>{"name": "f", "arguments": {"a": [1}}}</tool_call>', "expected ']'"),
        ('<tool_call>{"name": "f", "arguments": "{}"}</tool_call>', "not a JSON object"),
        ('<tool_call>{"name": "f", "arguments": {"a": "b\n"}}</tool_call>', "inside a string"),
        ('<tool_call>{"name": 5, "arguments": {}}</tool_call>', "not a string"),
        ('<tool_call>{"name": "", "arguments": {}}</tool_call>', "empty"),
        ('<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>', "surrogate"),
        ('<tool_call>{"arguments": {}}</tool_call>', "no name"),
        ('<tool_call>{"name": "f", "name": "g"}</tool_call>', "two names"),
        ('<tool_call>{"arguments": {}, "parameters": {}, "name": "f"}</tool_call>', "twice"),
        ('<tool_call>{"name": "f", "arguments": ' + '{"a":' * 200 + "1</tool_call>", "nested"),
    ],
)
def test_broken_block_is_reported_whole_and_ends_there(block: str, why: str) -> None:
    text = f"Look.\n{block}\n{CALL}"
    whole = run(HermesParser(), [text])
    message = whole[0]
    assert [broken.text for broken in message.broken] == [block]
    assert why in message.broken[0].reason
    assert [call.name for call in message.calls] == ["clock"]
    assert message.content == "Look."
    assert not message.is_regular
    for pieces in cuts(text):
        assert run(HermesParser(), pieces) == whole


def test_a_call_that_the_model_stopped_in_is_broken_not_cut() -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {"a"'
    assert parse(text, FinishReason.LENGTH).is_partial
    stopped = parse(text)
    assert not stopped.is_partial
    assert stopped.broken[0].text == text


@pytest.mark.parametrize("tail", ["", "\n", "\n</tool_"])
def test_a_whole_object_is_a_call_without_its_closing_marker(tail: str) -> None:
    text = CALL.removesuffix("\n</tool_call>") + tail
    assert [call.name for call in parse(text, FinishReason.LENGTH).calls] == ["clock"]


def test_a_new_call_closes_the_one_before() -> None:
    message = parse(CALL.removesuffix("</tool_call>") + CALL)
    assert [call.name for call in message.calls] == ["clock", "clock"]


def test_text_behind_a_call_goes_on_as_content() -> None:
    text = f"One.\n\n{CALL}\n \nTwo.\n"
    whole = run(HermesParser(), [text])
    assert whole[0].content == "One.\nTwo.\n"
    for pieces in cuts(text):
        assert run(HermesParser(), pieces) == whole


def test_late_end_of_reasoning_behind_an_implicit_one_is_dropped() -> None:
    text = f"<think>\nHm.\n{CALL}\n</think>\n\nDone."
    whole = run(HermesParser(has_reasoning=True), [text])
    assert (whole[0].reasoning, whole[0].content) == ("Hm.", "Done.")
    for pieces in cuts(text):
        assert run(HermesParser(has_reasoning=True), pieces) == whole


def test_think_is_content_where_the_model_has_no_reasoning_or_not_at_the_start() -> None:
    assert parse("<think>a</think>b").content == "<think>a</think>b"
    message, _ = run(HermesParser(has_reasoning=True), ["a <think>b</think>"])
    assert (message.reasoning, message.content) == (None, "a <think>b</think>")


def test_markers_are_content_for_a_model_without_calls() -> None:
    message, _ = run(HermesParser(has_calls=False), [CALL])
    assert (message.content, message.calls) == (CALL, ())


def test_finish_reason_is_tool_calls_only_if_the_model_stopped() -> None:
    assert parse(CALL).finish_reason(FinishReason.STOP) == "tool_calls"
    assert parse(CALL).finish_reason(FinishReason.LENGTH) == "length"
    assert parse("a").finish_reason(FinishReason.STOP) == "stop"


def test_a_finished_parser_takes_no_more() -> None:
    parser = HermesParser()
    with pytest.raises(RuntimeError):
        parser.message()
    parser.finish(FinishReason.STOP)
    with pytest.raises(RuntimeError):
        parser.feed("a")
    with pytest.raises(RuntimeError):
        parser.finish(FinishReason.STOP)


_PARTS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "f"', "}", "\n", " ",
     ', "arguments": {"a": "', '"', "\\", "<tool", "x", "{", "]", ":"]
)  # fmt: skip


@given(
    st.lists(_PARTS, max_size=14),
    st.lists(st.integers(1, 16), max_size=12),
    st.booleans(),
    st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
)
def test_any_text_at_any_cut_gives_one_result(
    parts: list[str], widths: list[int], has_reasoning: bool, reason: FinishReason
) -> None:
    text = "".join(parts)
    pieces, at = [], 0
    for width in widths:
        pieces.append(text[at : at + width])
        at += width
    whole = run(HermesParser(has_reasoning=has_reasoning), [text], reason)
    assert run(HermesParser(has_reasoning=has_reasoning), [*pieces, text[at:]], reason) == whole


@pytest.mark.timeout(60)
def test_long_arguments_are_read_in_linear_time() -> None:
    """200,000 characters take a second; copying all of them at each would take minutes."""
    text = json.dumps({"text": "x" * 200_000})
    block = f'<tool_call>{{"name": "w", "arguments": {text}}}</tool_call>'
    pieces = [block[at : at + 5] for at in range(0, len(block), 5)]
    message, joined = run(HermesParser(), pieces)
    assert message.calls[0].arguments == joined[(EventKind.ARGUMENTS, 0)] == text
