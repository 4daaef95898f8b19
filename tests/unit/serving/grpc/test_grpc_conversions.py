"""Whatever a call can say arrives as it was said, and back."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.api.v1 import call_pb2, stream_pb2
from whiflash.api.v1 import generation_service_pb2 as pb
from whiflash.chat.events import EventKind, ParseEvent
from whiflash.chat.messages import BrokenCall, ParsedMessage, ToolCall
from whiflash.client.chat import Chat
from whiflash.client.options import Prompt, call_message
from whiflash.core.errors import InvalidRequestError
from whiflash.core.params import SamplingParams
from whiflash.core.results import Completion, FinishReason, TokenLogprob
from whiflash.core.usage import ArmUsage, Usage
from whiflash.serving.call import (
    ChatPrompt,
    GenerationCall,
    JsonFormat,
    TextPrompt,
    TokenPrompt,
    ToolChoice,
)
from whiflash.serving.caller import LOCAL_CALLER, CallContext, Caller, Scope
from whiflash.serving.grpc.json_text import MAX_DEPTH, read_object
from whiflash.serving.grpc.requests import read_call, refuse_unknown
from whiflash.serving.grpc.responses import ResponseWriter, prompt_fingerprint
from whiflash.serving.stream import Ended, Piece, Queued, Started

texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
ids = st.integers(0, 2**32 - 1)
id_tuples = st.lists(ids, max_size=6).map(tuple)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(texts, part, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """As the server hands them on: OpenAI's shape with text content."""
    message: dict[str, Any] = {"role": draw(names), "content": draw(st.none() | texts)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if draw(st.booleans()):
            message[name] = draw(texts)
    calls = draw(st.lists(st.tuples(texts, texts, json_objects), max_size=2))
    if calls:
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for call_id, name, arguments in calls
        ]
    return message


@st.composite
def tools(draw: st.DrawFn) -> dict[str, Any]:
    function: dict[str, Any] = {"name": draw(names)}
    if draw(st.booleans()):
        function["description"] = draw(texts)
    if draw(st.booleans()):
        function["parameters"] = draw(json_objects)
    return {"type": "function", "function": function}


prompts = (
    texts.map(TextPrompt)
    | id_tuples.map(TokenPrompt)
    | st.builds(
        ChatPrompt,
        st.lists(messages(), max_size=3).map(tuple),
        st.lists(tools(), max_size=2).map(tuple),
        json_objects,
    )
)


@st.composite
def params(draw: st.DrawFn, max_tokens: int | None) -> SamplingParams:
    most = 256 if max_tokens is None else max_tokens
    return SamplingParams(
        temperature=draw(st.floats(0, 100)),
        top_k=draw(ids),
        top_p=draw(st.floats(0, 1, exclude_min=True)),
        min_p=draw(st.floats(0, 1)),
        logit_bias=draw(st.dictionaries(ids, st.floats(-100, 100), max_size=3)),
        repetition_penalty=draw(st.floats(0, 10, exclude_min=True)),
        presence_penalty=draw(st.floats(-2, 2)),
        frequency_penalty=draw(st.floats(-2, 2)),
        min_tokens=draw(st.integers(0, most)),
        max_tokens=most,
        stop=tuple(draw(st.lists(names, max_size=3))),
        stop_token_ids=draw(id_tuples),
        ignore_eos=draw(st.booleans()),
        seed=draw(st.none() | st.integers(0, 2**128 - 1)),
        n=draw(st.integers(1, 128)),
        logprobs=draw(st.none() | st.integers(0, 20)),
    )


@st.composite
def calls(draw: st.DrawFn) -> GenerationCall:
    max_tokens = draw(st.none() | st.integers(1, 2**31))
    mode = draw(st.sampled_from(["auto", "none", "required", "named"]))
    unreserved = names.filter(lambda name: name not in ("auto", "none", "required"))
    return GenerationCall(
        prompt=draw(prompts),
        params=draw(params(max_tokens)),
        model=draw(texts),
        max_tokens=max_tokens,
        tool_choice=ToolChoice(
            mode, draw(unreserved) if mode == "named" else "", draw(st.booleans())
        ),
        json_format=draw(st.none() | st.builds(JsonFormat, st.none() | json_objects)),
        prediction=draw(texts),
        drafter=draw(st.none() | texts),
        max_draft=draw(st.none() | ids),
        run_id=draw(texts),
        agent=draw(texts),
        subject=draw(texts),
        store=draw(st.booleans()),
        shared_drafts=draw(st.booleans()),
        forced_ids=draw(id_tuples),
        idempotency_key=draw(texts),
    )


def as_asked(call: GenerationCall) -> pb.GenerateRequest:
    """The call as a user of the client would ask for it, over the wire."""
    prompt: Prompt
    match call.prompt:
        case TextPrompt(text):
            prompt = text
        case TokenPrompt(token_ids):
            prompt = token_ids
        case ChatPrompt(said, offered, values):
            prompt = Chat(said, offered, values)
    sampling = {name: getattr(call.params, name) for name in SamplingParams.__dataclass_fields__}
    options = {name: value for name, value in sampling.items() if value is not None}
    del options["max_tokens"]
    optional = {
        "max_tokens": call.max_tokens,
        "drafter": call.drafter,
        "max_draft": call.max_draft,
    }
    options |= {name: value for name, value in optional.items() if value is not None}
    if call.json_format is not None:
        options["json_schema"] = call.json_format.schema
    choice = call.tool_choice
    message = call_message(
        prompt,
        {  # type: ignore[typeddict-item]
            **options,
            "tool_choice": choice.name or choice.mode,
            "single_call": not choice.is_parallel,
            "no_store": not call.store,
            "no_shared_drafts": not call.shared_drafts,
            **{
                name: getattr(call, name)
                for name in ("model", "prediction", "run_id", "agent", "subject")
            },
            "forced_ids": call.forced_ids,
            "idempotency_key": call.idempotency_key,
        },
    )
    raw = pb.GenerateRequest(call=message).SerializeToString()
    return pb.GenerateRequest.FromString(raw)


@given(calls())
@settings(max_examples=300, deadline=None)
def test_every_call_arrives_as_it_was_asked(call: GenerationCall) -> None:
    request = as_asked(call)
    refuse_unknown(request)
    assert read_call(request.call) == call


@given(st.dictionaries(names, json_values, min_size=1, max_size=5))
def test_keys_of_schemas_keep_their_order(schema: dict[str, Any]) -> None:
    """The template prints them: another order would be another prompt."""
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    call = read_call(call_message(Chat([], [tool]), {}))
    assert isinstance(call.prompt, ChatPrompt)
    assert json.dumps(call.prompt.tools[0]) == json.dumps(tool)


def test_defaults_are_those_of_the_record() -> None:
    assert read_call(call_message("x", {})) == GenerationCall(TextPrompt("x"))


def test_min_tokens_beyond_the_default_bound() -> None:
    assert read_call(call_message("x", {"min_tokens": 1000})).params.min_tokens == 1000


@given(st.binary(max_size=120))
@settings(max_examples=400, deadline=None)
def test_any_bytes_are_a_call_or_refused(raw: bytes) -> None:
    try:
        request = pb.GenerateRequest.FromString(raw)
    except DecodeError:
        return
    try:
        refuse_unknown(request)
        assert isinstance(read_call(request.call), GenerationCall)
    except InvalidRequestError:
        return


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be a JSON object"),
        ("{", "not JSON"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1e999}', "out of range"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"a": [["\\udc00"]]}', "surrogate"),
        ('{"\\ud800": 1}', "surrogate"),
        ("{" + '"a":{' * MAX_DEPTH + "}" * (MAX_DEPTH + 1), "levels"),
        ('{"a":' + "[" * 100_000, "not JSON"),
    ],
)
def test_json_that_cannot_be_carried_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        read_object(text, "schema")
    assert caught.value.param == "schema"


@pytest.mark.parametrize(
    "call",
    [
        call_pb2.Call(),
        call_pb2.Call(prompt=call_pb2.Prompt()),
        call_pb2.Call(prompt=call_pb2.Prompt(text="x"), tool_choice=call_pb2.ToolChoice(mode=99)),  # type: ignore[arg-type]
        call_pb2.Call(prompt=call_pb2.Prompt(text="x"), tool_choice=call_pb2.ToolChoice(name="f")),
        call_message(Chat([], [{"type": "function", "function": {"name": ""}}]), {}),
    ],
)
def test_calls_without_sense_are_refused(call: call_pb2.Call) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_call(call)
    assert caught.value.param in ("prompt", "tool_choice", "tools")


# Responses

arm_counts = st.integers(0, 2**32 - 1)
arm_usages = st.builds(
    ArmUsage, *[arm_counts] * 7, st.lists(arm_counts, max_size=3), st.lists(arm_counts, max_size=3)
)
usages = st.builds(
    Usage,
    prompt_tokens=arm_counts,
    cached_tokens=arm_counts,
    completion_tokens=arm_counts,
    rounds=arm_counts,
    preemptions=arm_counts,
    queue_ms=st.floats(0, 1e6),
    prefill_ms=st.floats(0, 1e6),
    decode_ms=st.floats(0, 1e6),
    arms=st.dictionaries(names, arm_usages, max_size=2),
)
logprobs = st.lists(
    st.builds(
        TokenLogprob,
        ids,
        st.floats(-100, 0),
        st.lists(st.tuples(ids, st.floats(-100, 0)), max_size=2).map(tuple),
    ),
    max_size=3,
).map(tuple)
parse_events = st.lists(
    st.builds(ParseEvent, st.sampled_from(EventKind), texts, st.none() | st.integers(0, 9)),
    max_size=4,
).map(tuple)
pieces = st.builds(
    Piece, st.integers(0, 127), id_tuples, texts, parse_events, names, arm_counts, logprobs
)
parsed = st.builds(
    ParsedMessage,
    texts,
    texts,
    st.none() | texts,
    st.lists(st.builds(ToolCall, names, texts), max_size=2).map(tuple),
    st.lists(st.builds(BrokenCall, texts, texts), max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
)
completions = st.builds(
    Completion,
    st.integers(0, 127),
    texts,
    id_tuples,
    st.sampled_from(FinishReason),
    usages,
    st.integers(0, 2**128 - 1),
    logprobs,
    st.just(()),
    st.none() | texts,
    st.none() | ids | names,
)
ends = st.builds(
    Ended,
    st.integers(0, 127),
    completions,
    parse_events,
    st.none() | parsed,
    arm_counts,
    arm_counts,
)

DEBUG = ResponseWriter(CallContext(LOCAL_CALLER, "r1"))
PLAIN = ResponseWriter(CallContext(Caller("t", "p", frozenset({Scope.GENERATE}), "k"), "r1"))


def wire(response: pb.GenerateResponse) -> pb.GenerateResponse:
    return pb.GenerateResponse.FromString(response.SerializeToString())


@given(pieces)
@settings(max_examples=150, deadline=None)
def test_pieces_say_all(piece: Piece) -> None:
    seen = wire(DEBUG.event(piece)).piece
    assert (seen.index, tuple(seen.token_ids), seen.text) == (
        piece.index,
        piece.token_ids,
        piece.text,
    )
    assert (seen.arm, seen.accepted) == (piece.arm, piece.accepted)
    assert [read_event(event) for event in seen.events] == list(piece.events)
    assert [read_logprob(entry) for entry in seen.logprobs] == list(piece.logprobs)
    hidden = wire(PLAIN.event(piece)).piece
    assert not hidden.HasField("arm")
    assert not hidden.HasField("accepted")


def read_event(event: stream_pb2.ParseEvent) -> ParseEvent:
    name = stream_pb2.ParseEventKind.Name(event.kind).removeprefix("PARSE_EVENT_KIND_")
    return ParseEvent(
        EventKind(name.lower()), event.text, event.call if event.HasField("call") else None
    )


def read_logprob(entry: stream_pb2.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(
        entry.token_id, entry.logprob, tuple((top.token_id, top.logprob) for top in entry.top)
    )


@given(ends)
@settings(max_examples=150, deadline=None)
def test_ends_say_all_that_the_caller_may_know(end: Ended) -> None:
    seen, hidden = wire(DEBUG.event(end)).ended, wire(PLAIN.event(end)).ended
    completion, usage = end.completion, end.completion.usage
    assert seen.usage.completion_tokens == len(completion.token_ids)
    assert seen.usage.cached_tokens == usage.cached_tokens
    assert seen.usage.accepted_prediction_tokens == end.accepted_prediction_tokens
    assert dict(seen.usage.arms).keys() == usage.arms.keys()
    for name, arm in usage.arms.items():
        written = seen.usage.arms[name]
        assert all(
            (list(value) if isinstance(value, list) else value) == plain(getattr(written, field))
            for field, value in vars_of(arm).items()
        )
    assert not hidden.usage.arms
    assert not hidden.usage.rounds
    stop = completion.matched_stop
    assert seen.WhichOneof("matched") == (
        None if stop is None else "stop_token_id" if isinstance(stop, int) else "stop_string"
    )
    check_message(seen, end)


def vars_of(arm: ArmUsage) -> dict[str, Any]:
    return {name: getattr(arm, name) for name in ArmUsage.__dataclass_fields__}


def plain(value: Any) -> Any:
    return value if isinstance(value, int) else list(value)


def check_message(seen: stream_pb2.Ended, end: Ended) -> None:
    message, reason = end.message, end.completion.finish_reason
    name = stream_pb2.FinishReason.Name(seen.finish_reason).removeprefix("FINISH_REASON_").lower()
    assert name == (reason.value if message is None else message.finish_reason(reason))
    assert seen.HasField("message") is (message is not None)
    if message is not None:
        assert (seen.message.text, seen.message.content) == (message.text, message.content)
        read = [ToolCall(call.name, call.arguments) for call in seen.message.tool_calls]
        assert tuple(read) == message.calls
        assert len({call.id for call in seen.message.tool_calls}) == len(message.calls)
        assert seen.message.HasField("reasoning") is (message.reasoning is not None)


@given(id_tuples, st.integers(0, 2**128 - 1))
def test_started_names_the_prompt_and_the_seed(prompt_ids: tuple[int, ...], seed: int) -> None:
    started = wire(DEBUG.event(Started(prompt_ids, seed))).started
    assert (started.seed.high << 64) | started.seed.low == seed
    assert started.prompt_tokens == len(prompt_ids)
    assert started.request_id == "r1"
    assert started.prompt_fingerprint == prompt_fingerprint(prompt_ids)


@given(id_tuples, id_tuples)
def test_fingerprints_tell_prompts_apart(one: tuple[int, ...], two: tuple[int, ...]) -> None:
    assert (prompt_fingerprint(one) == prompt_fingerprint(two)) is (one == two)


def test_queued() -> None:
    assert wire(DEBUG.event(Queued(1.5))).queued.waited_s == 1.5


def test_doubles_are_exact() -> None:
    value = math.nextafter(0.7, 1)
    call = read_call(call_message("x", {"temperature": value}))
    assert struct.pack("d", call.params.temperature) == struct.pack("d", value)
