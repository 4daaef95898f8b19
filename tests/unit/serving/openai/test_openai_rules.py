"""Bodies at the boundary: what is honoured, accepted without effect, refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.serving.openai.chat_body import ChatBody
from whiflash.serving.openai.completion_body import CompletionBody, TokenizeBody
from whiflash.serving.openai.problems import Problem
from whiflash.serving.openai.reading import check_body
from whiflash.serving.openai.rules import Body, NoEffect, Refused, rules_of

CHAT: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": "toy", "prompt": "hi"}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
BASES: list[tuple[type[Body], dict[str, Any]]] = [(ChatBody, CHAT), (CompletionBody, TEXT)]


def check(kind: type[Body], base: dict[str, Any], **fields: Any) -> Body:
    return check_body(json.dumps({**base, **fields}).encode(), kind)


def refusal(kind: type[Body], base: dict[str, Any], **fields: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        check(kind, base, **fields)
    assert caught.value.http == 400
    assert caught.value.body()["error"]["type"] == "invalid_request_error"
    assert not re.search(
        r"\bshould\b|valid (integer|number|string)|tag\b|pattern|False", caught.value.message
    )
    return caught.value


@pytest.mark.parametrize("kind", [ChatBody, CompletionBody, TokenizeBody])
def test_every_field_has_a_rule(kind: type[Body]) -> None:
    assert rules_of(kind).keys() == kind.model_fields.keys()


@pytest.mark.parametrize(("kind", "base"), BASES)
def test_every_refused_field_is_refused_by_name(kind: type[Body], base: dict[str, Any]) -> None:
    refused = {name: rule for name, rule in rules_of(kind).items() if isinstance(rule, Refused)}
    assert refused
    for name, rule in refused.items():
        for value in ("x", 7, True, ["x"], {"x": 1}):
            problem = refusal(kind, base, **{name: value})
            assert (problem.param, problem.code) == (name, "unsupported_parameter")
            assert rule.why in problem.message
        for neutral in (None, *rule.neutral):
            check(kind, base, **{name: neutral})


@pytest.mark.parametrize(("kind", "base"), BASES)
def test_every_field_but_the_required_may_be_null_or_missing(
    kind: type[Body], base: dict[str, Any]
) -> None:
    for name, field in kind.model_fields.items():
        if not field.is_required():
            check(kind, base, **{name: None})


@given(st.text(min_size=1))
def test_unknown_names_are_refused_whatever_they_are(name: str) -> None:
    if name in ChatBody.model_fields:
        return
    problem = refusal(ChatBody, CHAT, **{name: None})
    assert problem.code == "unknown_parameter"
    assert problem.param is not None
    assert problem.param.startswith(name[:100])


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": None}, "model", "invalid_type"),
        ({"temperature": "1"}, "temperature", "invalid_type"),
        ({"temperature": True}, "temperature", "invalid_type"),
        ({"stream": 1}, "stream", "invalid_type"),
        ({"n": 0}, "n", "integer_below_min_value"),
        ({"n": 129}, "n", "integer_above_max_value"),
        ({"n": 1.5}, "n", "invalid_type"),
        ({"seed": "x"}, "seed", "invalid_value"),
        ({"seed": 2**128}, "seed", "integer_above_max_value"),
        ({"stop": [1]}, "stop[0]", "invalid_type"),
        ({"stop": ["a"] * 17}, "stop", "invalid_value"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x", "invalid_value"),
        ({"store": True}, "store", "invalid_value"),
        ({"service_tier": "flex"}, "service_tier", "invalid_value"),
        ({"whiflash": {"speed": 2}}, "whiflash.speed", "unknown_parameter"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"max_tokens": 3, "max_completion_tokens": 3}, "max_tokens", "invalid_value"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tool_choice": "any"}, "tool_choice", "invalid_value"),
        ({"tools": [TOOL, TOOL]}, "tools", "invalid_value"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type", "invalid_value"),
        ({"response_format": {"type": "xml"}}, "response_format", "unsupported_value"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "missing_required_parameter",
        ),
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "user", "content": 4}]}, "messages[0].content", "invalid_type"),
        ({"messages": [{"role": "u", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user", "mood": "x"}]}, "messages[0].mood", "unknown_parameter"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
            "unsupported_value",
        ),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, code: str) -> None:
    problem = refusal(ChatBody, CHAT, **fields)
    assert (problem.param, problem.code) == (param, code)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt[0]"),
        ({"prompt": [[1], []]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [1], "echo": True}, "echo"),
        ({"echo": True, "logprobs": 0}, "echo"),
        ({"prompt": ["a"] * 64, "n": 3}, "n"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_what_is_wrong_with_a_text_completion_is_named(fields: dict[str, Any], param: str) -> None:
    assert refusal(CompletionBody, TEXT, **fields).param == param


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"null",
        b'{"model": "toy", "messages": NaN}',
        b'{"model": "\\ud800"}',
        b"[" * 100_000,
        b'{"a": ' * 5_000,
        b"9" * 10_000,
    ],
)
def test_what_is_no_json_object_is_a_400(raw: bytes) -> None:
    with pytest.raises(Problem) as caught:
        check_body(raw, ChatBody)
    assert caught.value.http == 400
    assert len(caught.value.message) < 700


@pytest.mark.parametrize("place", ["metadata", "tools"])
def test_numbers_out_of_range_are_refused_at_any_depth(place: str) -> None:
    tool = '[{"type": "function", "function": {"name": "f", "parameters": {"max": [1e999]}}}]'
    value = '{"a": {"b": 1e999}}' if place == "metadata" else tool
    raw = f'{{"model": "m", "messages": [{{"role": "user", "content": "x"}}], "{place}": {value}}}'
    with pytest.raises(Problem) as caught:
        check_body(raw.encode(), ChatBody)
    assert caught.value.http == 400


def test_fields_without_effect_are_accepted() -> None:
    accepted = {
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
    }
    without = {name for name, rule in rules_of(ChatBody).items() if isinstance(rule, NoEffect)}
    assert without == accepted.keys()
    check(ChatBody, CHAT, **accepted)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(sorted(ChatBody.model_fields)) | st.text(), inner)
        ),
        max_leaves=8,
    ),
    st.sampled_from(sorted(ChatBody.model_fields)),
)
def test_any_json_in_any_field_is_taken_or_refused(value: object, name: str) -> None:
    problem = None
    try:
        check(ChatBody, CHAT, **{name: value})
    except Problem as caught:
        problem = caught
    if problem is not None:
        assert problem.http == 400
        assert problem.message
        assert "\n" not in problem.message
