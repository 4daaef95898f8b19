"""Layouts of recorded runs, told by the fields of a record, as conversations.

chat:      {"messages": [...], "tools": [...]}, as OpenAI's chat API takes them; also what
           fine-tuning sets hold. Optional: run_id (or id), agent, subject (or user), model.
tau-bench: {"task_id": 0, "trial": 0, "traj": [...]}, elements of a result file's list.
SWE-agent: {"history": [...], "trajectory": [...]}, a .traj file.
BFCL:      {"id": "multi_turn_base_0", "result": [...]} of a result file, or "ground_truth" of the
           possible answers.
whiflash:  {"tokens": [...], "tokenizer": ...}, what `whiflash store export` writes.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from whiflash.core.errors import InvalidRequestError
from whiflash.serving.trajectories.conversation import Conversation

Json = Mapping[str, Any]
_UNSAID = {"role": "user", "content": ""}


def read_record(record: object) -> Conversation | Json:
    """The conversation of a record, or the stored turn that it is.
    Raises InvalidRequestError where it is of no known layout or a part of it is missing."""
    if not isinstance(record, Mapping):
        raise InvalidRequestError("it is no JSON object")
    if "tokens" in record and "tokenizer" in record:
        return record
    for field, read in _LAYOUTS.items():
        if field in record:
            return _labelled(read(record), record)
    raise InvalidRequestError(
        "it has none of the fields that tell its layout: messages (chat), traj (tau-bench), "
        "history (SWE-agent), result or ground_truth (BFCL), tokens (an export)"
    )


def _labelled(conversation: Conversation, record: Json) -> Conversation:
    """With the labels that a record may have in any layout."""
    labels = {
        "run_id": _label(record, "run_id", "id"),
        "agent": _label(record, "agent"),
        "subject": _label(record, "subject", "user"),
        "model": _label(record, "model"),
    }
    given: dict[str, Any] = {name: label for name, label in labels.items() if label}
    return replace(conversation, **given)


def _label(record: Json, *names: str) -> str:
    for name in names:
        value = record.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def _messages(record: Json, field: str) -> tuple[Json, ...]:
    value = record[field]
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise InvalidRequestError(f"{field} must be a list of messages", field)
    for number, message in enumerate(value):
        if not isinstance(message, Mapping) or "role" not in message:
            raise InvalidRequestError(f"{field}: message {number} has no role", field)
    return tuple(value)


def _chat(record: Json) -> Conversation:
    tools = record.get("tools") or ()
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise InvalidRequestError("tools must be a list", "tools")
    return Conversation(_messages(record, "messages"), tuple(tools))


def _tau_bench(record: Json) -> Conversation:
    task, trial = record.get("task_id", ""), record.get("trial", "")
    run_id = f"tau-bench/{task}/{trial}" if task != "" else ""
    return Conversation(_messages(record, "traj"), run_id=run_id, agent="tau-bench")


def _swe_agent(record: Json) -> Conversation:
    """Demonstrations that stand in the prompt were not said by the model."""
    kept = [m for m in _messages(record, "history") if not m.get("is_demo")]
    return Conversation(tuple(map(_plain_roles, kept)), agent="swe-agent")


def _plain_roles(message: Json) -> Json:
    """Its own fields (agent, thought, ...) left out; an assistant's text may be null beside
    calls."""
    kept = ("role", "content", "tool_calls", "tool_call_id", "name")
    return {name: message[name] for name in kept if message.get(name) is not None}


def _bfcl_result(record: Json) -> Conversation:
    return Conversation(tuple(_bfcl_messages(record["result"])), agent="bfcl")


def _bfcl_truth(record: Json) -> Conversation:
    return Conversation(tuple(_bfcl_messages(record["ground_truth"])), agent="bfcl")


def _bfcl_messages(value: object) -> Iterator[Json]:
    """An answer, or per turn a list of them; the users' words are in another file."""
    turns = value if isinstance(value, list) and value else [value]
    for turn in turns:
        yield _UNSAID
        steps = turn if isinstance(turn, list) else [turn]
        for step in steps:
            yield _bfcl_answer(step)


def _bfcl_answer(step: object) -> Json:
    """Text as the model wrote it, or calls: {"name": arguments}, or Python calls in a list."""
    entries = step if isinstance(step, list) else [step]
    if isinstance(step, str):
        call = _python_call(step)
        return {"role": "assistant", "content": step} if call is None else _calls([call])
    objects = [entry for entry in entries if isinstance(entry, Mapping)]
    if objects and len(objects) == len(entries):
        return _calls([pair for entry in objects for pair in entry.items()])
    raise InvalidRequestError(f"a step of the result is neither text nor calls: {step!r:.60}")


def _calls(pairs: Sequence[tuple[str, Any]]) -> Json:
    functions = [
        {"name": name, "arguments": value if isinstance(value, str) else json.dumps(value)}
        for name, value in pairs
    ]
    calls = [{"type": "function", "function": function} for function in functions]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _python_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """`name(key=value, ...)` with literal values; None where the text is something else."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name):
            return None
        return node.func.id, {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
    except (SyntaxError, ValueError):
        return None


_LAYOUTS: dict[str, Callable[[Json], Conversation]] = {
    "messages": _chat,
    "traj": _tau_bench,
    "history": _swe_agent,
    "result": _bfcl_result,
    "ground_truth": _bfcl_truth,
}
