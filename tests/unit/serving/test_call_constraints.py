"""The table of serving/constraints.py, row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from whiflash.core.constraint import ConstraintSpec, JsonAnswer, Reasoning, ToolCalls, ToolSchema
from whiflash.core.errors import InvalidRequestError
from whiflash.serving.call import ChatPrompt, GenerationCall, JsonFormat, TextPrompt, ToolChoice
from whiflash.serving.constraints import check_choice, constraint_of, offers_calls

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOLS = (
    {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "g"}},
)
READ = (ToolSchema("f", json.dumps(SCHEMA)), ToolSchema("g", '{"type": "object"}'))
MESSAGES = ({"role": "user", "content": "hi"},)
WITH, WITHOUT = ChatPrompt(MESSAGES, TOOLS), ChatPrompt(MESSAGES)
JSON = JsonFormat(SCHEMA)
JSON_ANSWER = JsonAnswer(json.dumps(SCHEMA))

ROWS: list[tuple[dict[str, Any], ConstraintSpec | None]] = [
    ({"prompt": WITHOUT}, None),
    ({"prompt": TextPrompt("x")}, None),
    ({"prompt": WITH, "tool_choice": ToolChoice("none")}, None),
    ({"prompt": WITHOUT, "json_format": JSON}, JSON_ANSWER),
    ({"prompt": TextPrompt("x"), "json_format": JsonFormat()}, JsonAnswer(None)),
    ({"prompt": WITH, "tool_choice": ToolChoice("none"), "json_format": JSON}, JSON_ANSWER),
    ({"prompt": WITH}, ToolCalls(READ)),
    ({"prompt": WITH, "tool_choice": ToolChoice("auto", is_parallel=False)},
     ToolCalls(READ, is_single=True)),
    ({"prompt": WITH, "json_format": JSON}, ToolCalls(READ, otherwise=JSON_ANSWER)),
    ({"prompt": WITH, "tool_choice": ToolChoice("required")}, ToolCalls(READ, is_required=True)),
    ({"prompt": WITH, "tool_choice": ToolChoice("named", "g")},
     ToolCalls(READ, is_required=True, named="g")),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), ROWS)
def test_each_row(fields: dict[str, Any], expected: ConstraintSpec | None) -> None:
    call = GenerationCall(**fields)
    check_choice(call, has_constraints=True)
    assert constraint_of(call, Reasoning.NONE, has_constraints=True) == expected
    assert offers_calls(call) is isinstance(expected, ToolCalls)


def test_what_the_prompt_says_of_reasoning_goes_along() -> None:
    for fields in ({"prompt": WITH}, {"prompt": WITHOUT, "json_format": JSON}):
        spec = constraint_of(GenerationCall(**fields), Reasoning.OPTIONAL, has_constraints=True)
        assert spec is not None
        assert spec.reasoning is Reasoning.OPTIONAL


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": WITH, "tool_choice": ToolChoice("some")}, "tool_choice"),
        ({"prompt": WITHOUT, "tool_choice": ToolChoice("required")}, "tool_choice"),
        ({"prompt": WITHOUT, "tool_choice": ToolChoice("named", "f")}, "tool_choice"),
        ({"prompt": WITH, "tool_choice": ToolChoice("named", "h")}, "tool_choice"),
        ({"prompt": WITH, "tool_choice": ToolChoice("named")}, "tool_choice"),
        ({"prompt": WITH, "tool_choice": ToolChoice("required"), "json_format": JSON},
         "tool_choice"),
        ({"prompt": ChatPrompt(MESSAGES, ({"type": "web_search"},)),
          "tool_choice": ToolChoice("named", "f")}, "tools"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_choice(GenerationCall(**fields), has_constraints=True)
    assert caught.value.param == param


def test_a_backend_without_constraints_leaves_auto_to_the_model_and_refuses_the_rest() -> None:
    auto = GenerationCall(WITH)
    check_choice(auto, has_constraints=False)
    assert constraint_of(auto, Reasoning.NONE, has_constraints=False) is None
    for fields, param in (
        ({"prompt": WITH, "tool_choice": ToolChoice("required")}, "tool_choice"),
        ({"prompt": WITHOUT, "json_format": JSON}, "response_format"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            check_choice(GenerationCall(**fields), has_constraints=False)
        assert caught.value.param == param
