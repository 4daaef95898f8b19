"""What a call demands of its answer's form, for the engine.

| tools | tool_choice | json_format | demand |
|---|---|---|---|
| no, or choice `none` | | no | none |
| no, or choice `none` | | yes | JSON |
| yes | `auto` | no | free text, calls held to their form from the opening marker on |
| yes | `auto` | yes | JSON or calls |
| yes | `required`, `named` | no | calls |
| yes | `required`, `named` | yes | refused |

The schema of a tool holds always, `strict` or not; one that no grammar can express is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whiflash.core.constraint import ConstraintSpec, JsonAnswer, Reasoning, ToolCalls, ToolSchema
from whiflash.core.errors import InvalidRequestError
from whiflash.serving.call import ChatPrompt, GenerationCall, Json, JsonFormat

MODES = ("none", "auto", "required", "named")
_ANY_OBJECT = '{"type": "object"}'


def offers_calls(call: GenerationCall) -> bool:
    """The answer may hold calls: tools are offered, and calling them is not forbidden."""
    has_tools = isinstance(call.prompt, ChatPrompt) and bool(call.prompt.tools)
    return has_tools and call.tool_choice.mode != "none"


def check_choice(call: GenerationCall, has_constraints: bool) -> None:
    """Raises InvalidRequestError for a choice that contradicts the rest of the call, or that a
    backend without constraints cannot keep."""
    choice = call.tool_choice
    if choice.mode not in MODES:
        raise InvalidRequestError(f"tool_choice must be one of {', '.join(MODES)}", "tool_choice")
    forces = choice.mode in ("required", "named")
    if forces and not offers_calls(call):
        raise InvalidRequestError(
            f"tool_choice {choice.mode!r} needs tools to choose from", "tool_choice"
        )
    if forces and call.json_format is not None:
        raise InvalidRequestError(
            f"response_format and tool_choice {choice.mode!r} exclude each other", "tool_choice"
        )
    if choice.mode == "named" and choice.name not in _names(call):
        raise InvalidRequestError(
            f"tool_choice names {choice.name!r}, which is none of the tools", "tool_choice"
        )
    if not has_constraints and (forces or call.json_format is not None):
        field = "tool_choice" if forces else "response_format"
        raise InvalidRequestError(
            f"{field}: this server was built without structured output", field
        )


def constraint_of(
    call: GenerationCall, reasoning: Reasoning, has_constraints: bool
) -> ConstraintSpec | None:
    """See the table. Without constraints `auto` leaves calls to the model. Raises
    InvalidRequestError on tools or schemas that cannot be read."""
    if not has_constraints:
        return None
    answer = None if call.json_format is None else _json_answer(call.json_format, reasoning)
    if not offers_calls(call):
        return answer
    assert isinstance(call.prompt, ChatPrompt), "only chats offer tools"
    choice = call.tool_choice
    return ToolCalls(
        tools=tuple(_tool(tool) for tool in call.prompt.tools),
        is_required=choice.mode != "auto",
        named=choice.name if choice.mode == "named" else None,
        is_single=not choice.is_parallel,
        otherwise=answer,
        reasoning=reasoning,
    )


def _json_answer(wanted: JsonFormat, reasoning: Reasoning) -> JsonAnswer:
    schema = None if wanted.schema is None else _json_text(wanted.schema)
    return JsonAnswer(schema, reasoning)


def _tool(tool: Json) -> ToolSchema:
    function = _function(tool)
    parameters = function.get("parameters")
    text = _ANY_OBJECT if parameters is None else _json_text(parameters)
    return ToolSchema(str(function.get("name")), text)


def _names(call: GenerationCall) -> set[str]:
    assert isinstance(call.prompt, ChatPrompt), "only chats offer tools"
    return {str(_function(tool).get("name")) for tool in call.prompt.tools}


def _function(tool: Json) -> Json:
    function: Any = tool.get("function")
    if not isinstance(function, Mapping):
        raise InvalidRequestError('a tool must be {"type": "function", "function": {...}}', "tools")
    return function


def _json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
