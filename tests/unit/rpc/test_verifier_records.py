"""One record, one message: nothing is lost on the way to a verifier and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.constraint import JsonAnswer, Reasoning, ToolCalls, ToolSchema
from whiflash.core.errors import InvalidRequestError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.results import Completion, Delta, FinishReason, TokenLogprob
from whiflash.core.usage import ArmUsage, Usage
from whiflash.rpc.v1 import verifier_service_pb2 as pb
from whiflash.rpc.verifier_events import ChoiceEnd, event_message, read_event
from whiflash.rpc.verifier_requests import read_request, read_seed, request_message, seed_bytes

ids = st.lists(st.integers(0, 2**31 - 1), max_size=6).map(tuple)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
counts = st.integers(0, 2**31 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
times = st.floats(0, 1e9)
seeds = st.integers(0, 2**128 - 1)
reasonings = st.sampled_from(Reasoning)
answers = st.builds(JsonAnswer, schema=st.none() | texts, reasoning=reasonings)
tools = st.lists(st.builds(ToolSchema, name=texts, parameters=texts), max_size=3).map(tuple)
constraints = answers | st.builds(
    ToolCalls,
    tools=tools,
    is_required=st.booleans(),
    named=st.none() | texts,
    is_single=st.booleans(),
    otherwise=st.none() | answers,
    reasoning=reasonings,
)
params = st.builds(
    SamplingParams,
    temperature=st.floats(0, 100),
    top_k=counts,
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
    logit_bias=st.dictionaries(counts, st.floats(-100, 100), max_size=3),
    repetition_penalty=st.floats(1e-300, 1e300),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    min_tokens=st.integers(0, 5),
    max_tokens=st.integers(5, 2**31 - 1),
    stop=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=3).map(
        tuple
    ),
    stop_token_ids=ids,
    ignore_eos=st.booleans(),
    seed=st.none() | seeds,
    n=st.integers(1, 128),
    logprobs=st.none() | st.integers(0, 20),
)
requests = st.builds(
    GenerationRequest,
    prompt_ids=ids,
    params=params,
    namespace=texts,
    run_id=texts,
    prediction_ids=ids,
    drafter=st.none() | texts,
    max_draft=st.none() | counts,
    forced_ids=ids,
    store=st.booleans(),
    deadline_s=st.none() | times,
    constraint=st.none() | constraints,
    call_marker=texts,
    agent=texts,
    subject=texts,
    shared_drafts=st.booleans(),
)
logprobs = st.builds(
    TokenLogprob,
    token_id=counts,
    logprob=numbers,
    top=st.lists(st.tuples(counts, numbers), max_size=3).map(tuple),
)
deltas = st.builds(
    Delta,
    index=counts,
    token_ids=ids,
    text=texts,
    arm=texts,
    accepted=counts,
    logprobs=st.lists(logprobs, max_size=3).map(tuple),
    finish_reason=st.none() | st.sampled_from(FinishReason),
)
positions = st.lists(counts, max_size=3)
arms = st.builds(
    ArmUsage,
    counts, counts, counts, counts, counts, counts, counts, positions, positions,
)  # fmt: skip
usages = st.builds(
    Usage, counts, counts, counts, counts, counts, times, times, times,
    st.dictionaries(texts, arms, max_size=3),
)  # fmt: skip
ends = st.builds(
    ChoiceEnd,
    index=counts,
    finish_reason=st.sampled_from(FinishReason),
    usage=usages,
    num_tokens=counts,
    error=st.none() | texts,
    matched_stop=st.none() | texts | counts,
)


@settings(deadline=None)
@given(requests)
def test_requests(request: GenerationRequest) -> None:
    wire = request_message(request).SerializeToString()
    assert read_request(pb.PreparedRequest.FromString(wire)) == request


@settings(deadline=None)
@given(deltas | ends)
def test_events(event: Delta | ChoiceEnd) -> None:
    wire = event_message(event).SerializeToString()
    assert read_event(pb.GenerateEvent.FromString(wire)) == event


@settings(deadline=None)
@given(seeds)
def test_seeds(seed: int) -> None:
    assert read_seed(seed_bytes(seed)) == seed


def test_zero_is_not_the_same_as_nothing() -> None:
    """A proto3 scalar that is 0 does not travel: `optional` must say where that matters."""
    request = GenerationRequest(
        (1,), SamplingParams(seed=0, logprobs=0), drafter="", max_draft=0, deadline_s=0.0
    )
    again = read_request(
        pb.PreparedRequest.FromString(request_message(request).SerializeToString())
    )
    assert again == request
    assert again.params.seed == 0
    assert math.copysign(1, again.params.temperature) == 1


def test_an_end_says_what_deltas_do_not() -> None:
    completion = Completion(1, "text", (4, 5), FinishReason.STOP, Usage(), 3, matched_stop="x")
    end = ChoiceEnd.of(completion)
    assert (end.index, end.num_tokens, end.matched_stop) == (1, 2, "x")


def test_values_out_of_range_are_refused() -> None:
    message = request_message(GenerationRequest((1,)))
    message.params.top_p = 0
    with pytest.raises(InvalidRequestError, match="top_p"):
        read_request(message)
    message = request_message(GenerationRequest((1,)))
    message.params.seed = b"short"
    with pytest.raises(InvalidRequestError, match="16 bytes"):
        read_request(message)


def test_unknown_kinds_are_refused() -> None:
    message = request_message(GenerationRequest((1,)))
    message.constraint.SetInParent()
    with pytest.raises(InvalidRequestError, match="constraint"):
        read_request(message)
    with pytest.raises(ValueError, match="unknown kind"):
        read_event(pb.GenerateEvent())
