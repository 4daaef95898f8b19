"""Answers from a call's events: recorded tool-call texts at every cut, streamed and whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.chat.hermes import HermesParser
from whiflash.core.errors import DeadlineExceededError, NumericsError, RequestCancelledError
from whiflash.core.results import Completion, FinishReason, TokenLogprob
from whiflash.core.usage import ArmUsage, Usage
from whiflash.serving.openai.chat_answer import ChatChunks
from whiflash.serving.openai.head import Head
from whiflash.serving.openai.text_answer import TextChunks
from whiflash.serving.openai.token_texts import TokenTexts
from whiflash.serving.openai.totals import Totals
from whiflash.serving.stream import Ended, Piece, Started, StreamEvent

DATA = Path(__file__).parents[3] / "data" / "tool_formats" / "hermes_cases.jsonl"
CASES = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()][1:]
TWO_CALLS = (
    'Both.\n<tool_call>\n{"name": "find", "arguments": {"a": "x",  "b": 1.0}}\n</tool_call>\n'
    '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
)
BROKEN = 'Hm.\n<tool_call>\n{"name": "find", "arguments": {"a": }}\n</tool_call>'


class Letters:
    """A tokenizer whose ids are code points."""

    fingerprint = "letters"

    def encode(self, text: str) -> list[int]:
        return [ord(char) for char in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(token) for token in token_ids)

    def id_to_token(self, token_id: int) -> str | None:
        return chr(token_id)


def chunks_of(
    num_choices: int = 1,
    has_usage: bool = False,
    has_logprobs: bool = False,
    holds_calls: bool = True,
    has_arms: bool = False,
) -> ChatChunks:
    head = Head("chatcmpl-1", "chat.completion.chunk", 7, "toy", "fp_1")
    return ChatChunks(
        head,
        Totals(has_arms=has_arms),
        TokenTexts(Letters()),
        num_choices=num_choices,
        has_usage=has_usage,
        has_logprobs=has_logprobs,
        holds_calls=holds_calls,
    )


def completion(index: int, text: str, reason: FinishReason = FinishReason.STOP) -> Completion:
    arms = {"retrieval": ArmUsage(rounds=2, emitted=5, drafted=4, accepted=3, ending_rounds=1)}
    usage = Usage(prompt_tokens=4, cached_tokens=3, completion_tokens=len(text), arms=arms)
    return Completion(index, text, tuple(map(ord, text)), reason, usage, 9)


def events_of(
    pieces: Iterable[str],
    parser: HermesParser | None = None,
    reason: FinishReason = FinishReason.STOP,
    index: int = 0,
) -> list[StreamEvent]:
    """What a service says of a text that comes in `pieces`."""
    parser = parser or HermesParser()
    events: list[StreamEvent] = []
    text = ""
    for piece in pieces:
        text += piece
        ids = tuple(map(ord, piece))
        logprobs = tuple(TokenLogprob(token, -0.5, ((token, -0.5),)) for token in ids)
        found = tuple(parser.feed(piece))
        events.append(Piece(index, ids, piece, found, "retrieval", 0, logprobs))
    found = tuple(parser.finish(reason))
    events.append(Ended(index, completion(index, text, reason), found, parser.message(), 2, 1))
    return events


STARTED = Started((1, 2, 3, 4), 9)


def stream(chunks: ChatChunks, events: Iterable[StreamEvent]) -> list[dict[str, Any]]:
    return [chunk for event in events for chunk in chunks.of(event)] + chunks.last()


def deltas(streamed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in streamed for choice in chunk["choices"]]


def joined(streamed: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of a stream, by OpenAI's rules."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "calls": []}
    for delta in deltas(streamed):
        for name in ("content", "reasoning_content"):
            message[name] += delta.get(name) or ""
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(message["calls"]):
                assert call["id"]
                assert call["type"] == "function"
                message["calls"].append({"name": call["function"]["name"], "arguments": ""})
            else:
                assert call["index"] == len(message["calls"]) - 1
                assert call["function"].keys() == {"arguments"}
            message["calls"][-1]["arguments"] += call["function"]["arguments"]
    return message


def parser_for(case: dict[str, Any]) -> HermesParser:
    tail = case["prompt_tail"].rstrip()
    return HermesParser(
        has_reasoning=case["format"] == "qwen3" and not tail.endswith("</think>"),
        in_reasoning=tail.endswith("<think>"),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
@pytest.mark.parametrize("holds_calls", [True, False])
def test_recorded_texts_stream_the_same_at_every_cut(
    case: dict[str, Any], holds_calls: bool
) -> None:
    """vllm #41967, #48020; sglang #31915: data lost where a chunk ends inside a call."""
    text = case["text"]
    reason = FinishReason.LENGTH if case["stop"] is None else FinishReason.STOP
    cuts = [(text,), tuple(text), *((text[:at], text[at:]) for at in range(1, len(text), 3))]
    messages = []
    for pieces in cuts:
        events = [STARTED, *events_of(pieces, parser_for(case), reason)]
        messages.append(joined(stream(chunks_of(holds_calls=holds_calls), events)))
    assert all(message == messages[0] for message in messages)
    assert messages[0]["content"].startswith(case["content"] or "")
    if holds_calls:
        calls = [(call["name"], json.loads(call["arguments"])) for call in messages[0]["calls"]]
        assert calls == [(call["name"], call["arguments"]) for call in case["calls"]]


@pytest.mark.parametrize("holds_calls", [True, False])
def test_the_whole_answer_is_what_the_stream_adds_up_to(holds_calls: bool) -> None:
    events = [STARTED, *events_of(tuple(TWO_CALLS))]
    streamed = joined(stream(chunks_of(holds_calls=holds_calls), events))
    chunks = chunks_of(holds_calls=holds_calls)
    choice = chunks.whole(stream(chunks, events))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == streamed["content"] == "Both."
    calls = choice["message"]["tool_calls"]
    assert [call["function"] for call in calls] == streamed["calls"]
    assert calls[0]["function"]["arguments"] == '{"a": "x",  "b": 1.0}'
    assert len({call["id"] for call in calls}) == 2


def test_calls_stream_name_first_then_pieces_of_arguments() -> None:
    sent = deltas(stream(chunks_of(holds_calls=False), [STARTED, *events_of(tuple(TWO_CALLS))]))
    calls = [delta["tool_calls"][0] for delta in sent if "tool_calls" in delta]
    first = calls[0]
    assert first["function"] == {"name": "find", "arguments": ""}
    assert sum(call["index"] == 0 for call in calls) > 10, "arguments came at once"
    assert sent[-1] == {}


def test_a_broken_call_is_text_and_no_call() -> None:
    """What was streamed cannot be taken back, so a call that nothing forces is held."""
    for pieces in ((BROKEN,), tuple(BROKEN)):
        chunks = chunks_of()
        streamed = stream(chunks, [STARTED, *events_of(pieces)])
        message = joined(streamed)
        assert message["calls"] == []
        assert message["content"] == BROKEN
        assert streamed[-1]["choices"][0]["finish_reason"] == "stop"


def test_each_choice_has_a_role_its_text_and_an_end() -> None:
    events = [STARTED, *events_of(("a", "b"), index=1), *events_of(("c",), index=0)]
    streamed = stream(chunks_of(num_choices=2), events)
    by_index: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
    for chunk in streamed:
        assert chunk["id"] == "chatcmpl-1"
        assert (chunk["object"], chunk["model"], chunk["created"]) == (
            "chat.completion.chunk", "toy", 7,
        )  # fmt: skip
        for choice in chunk["choices"]:
            by_index[choice["index"]].append(choice)
    for index, text in ((0, "c"), (1, "ab")):
        choices = by_index[index]
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(choice["delta"].get("content", "") for choice in choices) == text
        assert [choice["finish_reason"] for choice in choices][-1] == "stop"


def test_usage_comes_last_and_only_if_asked() -> None:
    events = [STARTED, *events_of(("ab",), index=0), *events_of(("abc",), index=1)]
    assert "usage" not in stream(chunks_of(num_choices=2), events)[-1]
    streamed = stream(chunks_of(num_choices=2, has_usage=True), events)
    assert [chunk["usage"] for chunk in streamed[:-1]] == [None] * (len(streamed) - 1)
    assert streamed[-1]["choices"] == []
    assert streamed[-1]["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 5,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 4,
            "rejected_prediction_tokens": 2,
        },
    }


def test_arms_are_told_only_to_those_who_may_know() -> None:
    events = [STARTED, *events_of(("ab",))]
    told = {}
    for has_arms in (True, False):
        chunks = chunks_of(has_arms=has_arms)
        told[has_arms] = chunks.whole(stream(chunks, events))["whiflash"]
    assert told[False] == {"seed": "9"}
    assert told[True]["drafted"] == 4
    assert told[True]["arms"]["retrieval"]["rounds"] == 3


@given(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=6))
def test_there_are_as_many_logprobs_as_tokens_in_every_chunk(pieces: list[str]) -> None:
    """sglang #10660: output logprobs missing."""
    text = "".join(pieces)
    chunks = chunks_of(has_logprobs=True)
    streamed = stream(chunks, [STARTED, *events_of(pieces)])
    told = [choice["logprobs"]["content"] for chunk in streamed for choice in chunk["choices"]
            if choice["logprobs"] is not None]  # fmt: skip
    assert [len(content) for content in told] == [len(piece) for piece in pieces]
    assert "".join(entry["token"] for content in told for entry in content) == text
    whole = chunks.whole(streamed)["choices"][0]["logprobs"]["content"]
    assert whole == [entry for content in told for entry in content]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (FinishReason.ERROR, NumericsError),
        (FinishReason.DEADLINE, DeadlineExceededError),
        (FinishReason.CANCELLED, RequestCancelledError),
    ],
)
def test_an_end_from_outside_is_an_error(reason: FinishReason, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        stream(chunks_of(), [STARTED, *events_of(("a",), reason=reason)])


def test_text_completions_number_choices_over_all_prompts() -> None:
    head = Head("cmpl-1", "text_completion", 7, "toy", "fp_1")
    chunks = TextChunks(
        head, Totals(has_arms=False), Letters(), TokenTexts(Letters()),
        num_choices=2, echoes=["p", "q"], has_usage=True, has_logprobs=True,
    )  # fmt: skip
    sent = [*chunks.of(1, STARTED), *chunks.of(0, STARTED)]
    for prompt, index, text in ((1, 0, "cd"), (0, 1, "b"), (0, 0, "a"), (1, 1, "é")):
        for event in events_of(tuple(text), index=index):
            sent += chunks.of(prompt, event)
    answer = chunks.whole(sent)
    assert [choice["text"] for choice in answer["choices"]] == ["pa", "pb", "qcd", "qé"]
    assert answer["choices"][2]["logprobs"]["tokens"] == ["c", "d"]
    assert answer["choices"][2]["logprobs"]["text_offset"] == [0, 1]
    assert chunks.last()[0]["usage"]["prompt_tokens"] == 8


@pytest.mark.parametrize(
    ("text", "reason", "told"),
    [
        (TWO_CALLS, FinishReason.STOP, "tool_calls"),
        (TWO_CALLS, FinishReason.LENGTH, "length"),
        (BROKEN, FinishReason.STOP, "stop"),
    ],
)
def test_length_comes_before_tool_calls(text: str, reason: FinishReason, told: str) -> None:
    """docs/api.md: what was cut may lack calls, also where it holds complete ones."""
    chunks = chunks_of()
    answer = chunks.whole(stream(chunks, [STARTED, *events_of([text], reason=reason)]))
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == told
    assert len(choice["message"].get("tool_calls", ())) == (0 if text == BROKEN else 2)
