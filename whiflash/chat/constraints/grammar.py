"""Grammars of whole answers: JSON, or calls in the hermes format, behind reasoning or not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from whiflash.chat.constraints.library import grammar_library, library_reason
from whiflash.chat.constraints.schema import STAND_IN, checked_schema
from whiflash.chat.hermes import CALL_CLOSE, CALL_OPEN, THINK_CLOSE, THINK_OPEN
from whiflash.core.constraint import ConstraintSpec, JsonAnswer, Reasoning, ToolCalls, ToolSchema
from whiflash.core.errors import InvalidRequestError

MAX_TOOLS = 128
MAX_NAME_CHARS = 128
MAX_TOOLS_CHARS = 512 << 10
MAX_SPACE_CHARS = 24
"""Of one gap between two signs of JSON: a line end and its indentation."""
_BEHIND_REASONING = "\n\n"  # what templates of reasoning models write behind the closing tag
_ANY_OBJECT = '{"type": "object"}'

_STAND_IN = re.compile(r'Regex\("(\^' + STAND_IN + r'\d+\$)", json_string=true\)')

Format = dict[str, Any]


def structural_tag(spec: ConstraintSpec, param: str) -> str:
    """xgrammar's structural tag for the whole answer, as JSON text. Raises InvalidRequestError
    naming `param`."""
    if isinstance(spec, JsonAnswer):
        answer, is_whole = _json(spec, param), True
    else:
        answer, is_whole = _calls(spec, param)
    if is_whole:
        answer = _behind_reasoning(answer, spec.reasoning)
    return json.dumps({"type": "structural_tag", "format": answer}, ensure_ascii=False)


def _json(spec: JsonAnswer, param: str) -> Format:
    return _value(_ANY_OBJECT if spec.schema is None else spec.schema, param, "schema")


def _value(schema: str, param: str, where: str) -> Format:
    """One JSON value. White space is the model's own (compact, spaced or indented, as it has seen
    the conversation written: a form forced upon it costs it the sense), but bounded, so that an
    answer cannot run on in it."""
    checked = checked_schema(schema, param, where)
    try:
        grammar = grammar_library().Grammar.from_json_schema(
            checked.text,
            any_whitespace=True,
            max_whitespace_cnt=MAX_SPACE_CHARS,
            strict_mode=False,
        )
    except (RuntimeError, ValueError) as error:
        raise InvalidRequestError(
            f"{param}: {where} cannot be compiled: {library_reason(error)}", param
        ) from None
    return {"type": "grammar", "grammar": _with_rules(str(grammar), checked.rules)}


def _with_rules(grammar: str, rules: Mapping[str, str]) -> str:
    """The library's rules with ours in place of the patterns that stand in for them."""
    text = _STAND_IN.sub(lambda found: f"({rules[found[1]]})", grammar)
    if STAND_IN in text:
        raise RuntimeError("the grammar library writes patterns in a form that is not known here")
    return text


def _calls(spec: ToolCalls, param: str) -> tuple[Format, bool]:
    """The format, and whether it is the whole answer behind the reasoning."""
    tags = [_call(tool, param) for tool in _offered(spec, param)]
    only_calls: Format = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": "\n",
        "at_least_one": True,
        "stop_after_first": spec.is_single,
    }
    if spec.is_required or spec.named is not None:
        if spec.otherwise is not None:
            raise InvalidRequestError(
                f"{param}: where calls are required the answer can be nothing else", param
            )
        return only_calls, True
    if spec.otherwise is not None:
        return {"type": "or", "elements": [_json(spec.otherwise, param), only_calls]}, True
    # Reasoning is free text as well, and a call inside it ends it: nothing stands in front.
    return {
        "type": "triggered_tags",
        "triggers": [CALL_OPEN],
        "tags": tags,
        "stop_after_first": spec.is_single,
    }, False


def _offered(spec: ToolCalls, param: str) -> tuple[ToolSchema, ...]:
    names = [tool.name for tool in spec.tools]
    if not 0 < len(names) <= MAX_TOOLS:
        raise InvalidRequestError(f"{param}: 1 to {MAX_TOOLS} tools, not {len(names)}", param)
    if len(set(names)) < len(names):
        raise InvalidRequestError(f"{param}: two tools have the same name", param)
    if sum(len(tool.parameters) for tool in spec.tools) > MAX_TOOLS_CHARS:
        raise InvalidRequestError(
            f"{param}: all parameters together have more than {MAX_TOOLS_CHARS} characters", param
        )
    for name in names:
        if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise InvalidRequestError(
                f"{param}: a tool's name has 1 to {MAX_NAME_CHARS} printable characters", param
            )
    if spec.named is None:
        return spec.tools
    if spec.named not in names:
        raise InvalidRequestError(f"{param}: {spec.named!r} is not among the tools", "tool_choice")
    return tuple(tool for tool in spec.tools if tool.name == spec.named)


def _call(tool: ToolSchema, param: str) -> Format:
    """A block as `chat.hermes.write` has it."""
    name = json.dumps(tool.name, ensure_ascii=False)
    return {
        "type": "tag",
        "begin": f'{CALL_OPEN}\n{{"name": {name}, "arguments": ',
        "content": _value(tool.parameters, param, f"parameters of {tool.name}"),
        "end": f"}}\n{CALL_CLOSE}",
    }


def _behind_reasoning(answer: Format, reasoning: Reasoning) -> Format:
    """Reasoning is any text without markers up to its closing tag, wherever in a run of accepted
    tokens that falls (vllm #34650, #36138)."""
    if reasoning is Reasoning.NONE:
        return answer
    free: Format = {
        "type": "tag",
        "begin": "" if reasoning is Reasoning.OPEN else THINK_OPEN,
        "content": {"type": "any_text", "excludes": [CALL_OPEN]},
        "end": THINK_CLOSE,
    }
    gap: Format = {"type": "const_string", "value": _BEHIND_REASONING}
    behind: Format = {"type": "sequence", "elements": [free, gap, answer]}
    if reasoning is Reasoning.OPEN:
        return behind
    return {"type": "or", "elements": [answer, behind]}
