"""Tools and response formats over a real connection: the form holds whatever the model is."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "abc"}
PARAMETERS = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}, "size": {"enum": ["s", "m"]}},
    "required": ["on", "size"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS, "strict": True}}
    for name in ("set", "get")
]
BASE: dict[str, Any] = {"model": "toy", "messages": [USER], "max_tokens": 200}
NAMED = {"type": "function", "function": {"name": "get"}}


def check_value(value: dict[str, Any]) -> None:
    assert value.keys() == {"on", "size"}
    assert isinstance(value["on"], bool)
    assert value["size"] in ("s", "m")


def whole(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = http.post(PATH, json={**BASE, **fields})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["choices"][0])


def streamed(http: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    with http.stream("POST", PATH, json={**BASE, **fields, "stream": True}) as answer:
        data = [line[6:] for line in answer.iter_lines() if line.startswith("data: {")]
    return [choice for line in data for choice in json.loads(line)["choices"]]


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("seed", [1, 2])
def test_forced_calls_are_calls_streamed_and_whole(
    http: httpx.Client, choice: Any, seed: int
) -> None:
    fields = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, "seed": seed}
    answer = whole(http, **fields)
    assert answer["finish_reason"] == "tool_calls"
    (call,) = answer["message"]["tool_calls"]
    assert call["function"]["name"] in (("get",) if choice is NAMED else ("set", "get"))
    check_value(json.loads(call["function"]["arguments"]))
    pieces = [
        delta["tool_calls"][0]
        for part in streamed(http, **fields)
        if "tool_calls" in (delta := part["delta"])
    ]
    assert pieces[0]["id"] != call["id"]
    assert pieces[0]["function"] == {"name": call["function"]["name"], "arguments": ""}
    text = "".join(piece["function"]["arguments"] for piece in pieces[1:])
    assert text == call["function"]["arguments"]
    assert len(pieces) > 2, "arguments came at once"


def test_choice_none_calls_nothing(http: httpx.Client) -> None:
    for seed in range(5):
        answer = whole(http, tools=TOOLS, tool_choice="none", seed=seed, max_tokens=60)
        assert "tool_calls" not in answer["message"]
        assert answer["finish_reason"] in ("stop", "length")


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": PARAMETERS}},
    ],
)
def test_response_formats_hold(http: httpx.Client, wanted: dict[str, Any]) -> None:
    for seed in range(3):
        answer = whole(http, response_format=wanted, seed=seed, max_tokens=400)
        if answer["finish_reason"] == "length":
            assert wanted["type"] == "json_object", "the schema bounds its answers"
            continue
        value = json.loads(answer["message"]["content"])
        assert isinstance(value, dict)
        if wanted["type"] == "json_schema":
            check_value(value)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}},
         "tool_choice"),
        ({"response_format": {"type": "json_schema", "json_schema": {
            "name": "n", "schema": {"type": "nonsense"}}}}, "response_format"),
        ({"tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"type": "nonsense"}}}]}, "tools"),
    ],
)  # fmt: skip
def test_what_no_grammar_can_hold_is_a_400(
    http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    answer = http.post(PATH, json={**BASE, **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
