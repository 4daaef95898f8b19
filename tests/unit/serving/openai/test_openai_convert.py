"""From a body to a call: by table, and over all values that a client may send."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.errors import InvalidRequestError
from whiflash.core.params import SamplingParams
from whiflash.serving.call import (
    ChatPrompt,
    GenerationCall,
    JsonFormat,
    TextPrompt,
    TokenPrompt,
    ToolChoice,
)
from whiflash.serving.openai.chat_body import ChatBody
from whiflash.serving.openai.completion_body import CompletionBody
from whiflash.serving.openai.convert import chat_call, completion_calls

USER = {"role": "user", "content": "hi"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "find", "description": "d", "parameters": {"type": "object"}},
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
PLAIN = SamplingParams(temperature=1.0, max_tokens=1)


def chat(**fields: Any) -> GenerationCall:
    return chat_call(ChatBody.model_validate({"model": "toy", "messages": [USER], **fields}))


def text(**fields: Any) -> list[GenerationCall]:
    body = {"model": "toy", "prompt": "hi", **fields}
    return completion_calls(CompletionBody.model_validate(body))


def test_defaults_are_openais() -> None:
    call = chat()
    assert call.params == PLAIN
    assert call.max_tokens is None
    assert call.tool_choice == ToolChoice("none")
    assert (call.store, call.shared_drafts, call.drafter) == (True, True, None)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 0}, {"temperature": 0.0}),
        ({"top_p": 0.5, "top_k": 7, "min_p": 0.1}, {"top_p": 0.5, "top_k": 7, "min_p": 0.1}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"presence_penalty": 1}, {"presence_penalty": 1.0}),
        ({"frequency_penalty": -1}, {"frequency_penalty": -1.0}),
        ({"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}),
        ({"logit_bias": {"5": -100, "007": 3}}, {"logit_bias": {5: -100.0, 7: 3.0}}),
        ({"stop": "a"}, {"stop": ("a",)}),
        ({"stop": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"stop": []}, {"stop": ()}),
        ({"stop_token_ids": [2, 3]}, {"stop_token_ids": (2, 3)}),
        ({"ignore_eos": True}, {"ignore_eos": True}),
        ({"seed": 0}, {"seed": 0}),
        ({"seed": -1}, {"seed": 2**128 - 1}),
        ({"seed": str(2**127 + 1)}, {"seed": 2**127 + 1}),
        ({"n": 3}, {"n": 3}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 4}, {"logprobs": 4}),
        ({"logprobs": False}, {"logprobs": None}),
        ({"min_tokens": 9}, {"min_tokens": 9, "max_tokens": 9}),
        ({"max_tokens": 4}, {"max_tokens": 4}),
        ({"max_completion_tokens": 4}, {"max_tokens": 4}),
    ],
)  # fmt: skip
def test_sampling(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert chat(**fields).params == dataclasses.replace(PLAIN, **expected)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ToolChoice("auto")),
        ({"tool_choice": "none"}, ToolChoice("none")),
        ({"tool_choice": "required"}, ToolChoice("required")),
        ({"parallel_tool_calls": False}, ToolChoice("auto", "", False)),
        (
            {"tool_choice": {"type": "function", "function": {"name": "find"}}},
            ToolChoice("named", "find"),
        ),
    ],
)
def test_tool_choice(fields: dict[str, Any], expected: ToolChoice) -> None:
    assert chat(tools=[TOOL], **fields).tool_choice == expected


@pytest.mark.parametrize(
    ("given_format", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, JsonFormat()),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}},
            JsonFormat(SCHEMA),
        ),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, JsonFormat()),
    ],
)
def test_response_format(given_format: dict[str, Any], expected: JsonFormat | None) -> None:
    assert chat(response_format=given_format).json_format == expected


def test_extension_and_scope() -> None:
    extension = {
        "drafter": "none",
        "max_draft": 3,
        "no_store": True,
        "no_shared_drafts": True,
        "run_id": "r",
        "agent": "a",
    }
    call = chat(whiflash=extension, user="u")
    assert (call.drafter, call.max_draft, call.run_id, call.agent) == ("none", 3, "r", "a")
    assert (call.store, call.shared_drafts, call.subject) == (False, False, "u")


@pytest.mark.parametrize(
    ("fields", "is_stored"),
    [
        ({}, True),
        ({"store": None}, True),
        ({"store": False}, False),
        ({"store": False, "whiflash": {"no_store": False}}, False),
        ({"whiflash": {"no_store": True}}, False),
    ],
)
def test_store_false_keeps_the_turn_out_of_the_store(
    fields: dict[str, Any], is_stored: bool
) -> None:
    assert chat(**fields).store is is_stored


@pytest.mark.parametrize(
    ("fields", "subject"),
    [
        ({"safety_identifier": "s"}, "s"),
        ({"safety_identifier": "s", "user": "u"}, "u"),
        ({"safety_identifier": ""}, ""),
    ],
)
def test_the_safety_identifier_is_the_end_user_where_no_user_is_named(
    fields: dict[str, Any], subject: str
) -> None:
    assert chat(**fields).subject == subject


@pytest.mark.parametrize(
    "content", ["as is", [{"type": "text", "text": "as "}, {"type": "text", "text": "is"}]]
)
def test_prediction_is_its_text(content: Any) -> None:
    assert chat(prediction={"type": "content", "content": content}).prediction == "as is"


def test_messages_reach_the_template_as_they_were() -> None:
    """Argument text goes through unchanged: another spelling would end the cached prefix."""
    arguments = '{"a": 1.0,  "b": "\\u00e9"}'
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": arguments}}
    messages = [
        {"role": "system", "content": [part("be"), part("!")]},
        {"role": "user", "content": "hi", "name": "ada"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": "x", "reasoning_content": "y", "annotations": []},
    ]  # fmt: skip
    prompt = chat(messages=messages, tools=[TOOL]).prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages == (
        {"role": "system", "content": "be!"},
        {"role": "user", "content": "hi", "name": "ada"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "done", "tool_call_id": "c"},
        {"role": "assistant", "content": "no"},
        {"role": "assistant", "content": "x", "reasoning_content": "y"},
    )
    assert prompt.tools == (TOOL,)


def test_strict_is_not_shown_to_the_model() -> None:
    tool = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    prompt = chat(tools=[tool]).prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.tools == (TOOL,)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("hi", [TextPrompt("hi")]),
        (["a", "b"], [TextPrompt("a"), TextPrompt("b")]),
        ([1, 2], [TokenPrompt((1, 2))]),
        ([[1, 2], [3]], [TokenPrompt((1, 2)), TokenPrompt((3,))]),
    ],
)
def test_text_prompts(prompt: Any, expected: list[Any]) -> None:
    calls = text(prompt=prompt)
    assert [call.prompt for call in calls] == expected
    assert all(call.max_tokens == 16 for call in calls)


def test_each_prompt_of_a_keyed_request_has_a_key_of_its_own() -> None:
    body = CompletionBody.model_validate({"model": "toy", "prompt": ["a", "a"]})
    assert [call.idempotency_key for call in completion_calls(body, "k")] == ["k/0", "k/1"]
    assert {call.idempotency_key for call in completion_calls(body)} == {""}


def part(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 100) | st.none(),
        "top_p": st.floats(0, 1, exclude_min=True) | st.none(),
        "top_k": st.integers(-1, 99999) | st.none(),
        "min_p": st.floats(0, 1) | st.none(),
        "presence_penalty": st.floats(-2, 2) | st.none(),
        "frequency_penalty": st.integers(-2, 2) | st.none(),
        "repetition_penalty": st.floats(0.01, 10) | st.none(),
        "n": st.integers(1, 128) | st.none(),
        "seed": st.integers(-(2**63), 2**128 - 1) | st.none(),
        "stop": st.text(min_size=1) | st.lists(st.text(min_size=1), max_size=16) | st.none(),
        "max_tokens": st.integers(50, 10**9) | st.none(),
        "min_tokens": st.integers(0, 50) | st.none(),
        "logit_bias": st.dictionaries(
            st.integers(0, 10**9 - 1).map(str), st.floats(-100, 100), max_size=4
        ),
    },
)


@given(PARAMETERS)
def test_every_value_in_range_is_honoured_as_it_is(fields: dict[str, Any]) -> None:
    params = chat(**json.loads(json.dumps(fields))).params
    for name in ("temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty", "n"):
        if fields.get(name) is not None:
            assert getattr(params, name) == fields[name]
    if fields.get("seed") is not None:
        assert params.seed == fields["seed"] % 2**128
    if fields.get("logit_bias"):
        assert params.logit_bias == {int(k): v for k, v in fields["logit_bias"].items()}


@given(st.sampled_from(["temperature", "top_p", "min_p", "presence_penalty"]), st.floats(200, 1e9))
def test_every_value_out_of_range_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chat(**{name: value})
    assert caught.value.param == name
