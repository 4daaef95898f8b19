"""Requests that real clients sent (tests/e2e/clients/record.py): each is honoured, field by field.

The three lists of docs/api.md come from them: what a client sends and we refuse would show here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whiflash.serving.call import ChatPrompt, GenerationCall
from whiflash.serving.openai.chat_body import ChatBody
from whiflash.serving.openai.completion_body import CompletionBody
from whiflash.serving.openai.convert import chat_call, completion_calls
from whiflash.serving.openai.problems import Problem
from whiflash.serving.openai.reading import check_body
from whiflash.serving.openai.rules import Refused, rules_of

FOLDER = Path(__file__).parents[3] / "data" / "openai_requests"
FILES = sorted(FOLDER.glob("*.json"))
REQUESTS = [
    pytest.param(request, id=f"{file.stem}-{number}")
    for file in FILES
    for number, request in enumerate(json.loads(file.read_text("utf-8"))["requests"])
]
MESSAGE_FIELDS = ("role", "content", "tool_calls", "tool_call_id")


def test_each_client_is_there() -> None:
    names = {file.stem for file in FILES}
    for client in ("openai", "pydantic_ai", "langchain"):
        for scenario in ("tools", "tools_streamed", "structured"):
            assert f"{client}_{scenario}" in names


def convert(request: dict[str, Any]) -> GenerationCall:
    raw = json.dumps(request["body"]).encode()
    if request["path"] == "/v1/chat/completions":
        return chat_call(check_body(raw, ChatBody))
    (call,) = completion_calls(check_body(raw, CompletionBody))
    return call


@pytest.mark.parametrize("request_", REQUESTS)
def test_what_clients_send_is_honoured(request_: dict[str, Any]) -> None:
    body, call = request_["body"], convert(request_)
    kind = ChatBody if "messages" in body else CompletionBody
    assert not any(isinstance(rules_of(kind)[name], Refused) for name in body)
    if body.get("temperature") is not None:
        assert call.params.temperature == body["temperature"]
    bounds = {body.get("max_tokens"), body.get("max_completion_tokens")} - {None}
    assert {call.max_tokens} == bounds or not bounds
    if isinstance(call.prompt, ChatPrompt):
        assert len(call.prompt.messages) == len(body["messages"])
        for ours, theirs in zip(call.prompt.messages, body["messages"], strict=True):
            for name in MESSAGE_FIELDS:
                assert ours.get(name) == theirs.get(name)
        assert len(call.prompt.tools) == len(body.get("tools", ()))
    form = body.get("response_format", {})
    if form.get("type") == "json_schema":
        assert call.json_format is not None
        assert call.json_format.schema == form["json_schema"]["schema"]


@pytest.mark.parametrize("request_", REQUESTS)
def test_one_unknown_field_is_enough_to_refuse_it(request_: dict[str, Any]) -> None:
    with pytest.raises(Problem) as caught:
        convert({**request_, "body": {**request_["body"], "guided_json": {}}})
    assert caught.value.param == "guided_json"
