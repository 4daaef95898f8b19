"""Random requests: never a crash, never a 5xx, always OpenAI's error shape.

schemathesis makes them from the OpenAPI document, wrong ones included; hypothesis makes those that
no schema describes. 500 for each endpoint here, always the same;
10,000 new ones under the mark `soak`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode

from whiflash.serving.openai.chat_body import ChatBody
from whiflash.serving.openai.completion_body import CompletionBody, TokenizeBody
from whiflash.serving.openai.rules import Body
from whiflash.testing.http_server import HttpServer

NUM_CASES, NUM_SOAK = 250, 5_000  # of each of the two kinds
QUIET = list(HealthCheck)
PHASES = [Phase.explicit, Phase.generate]
ENDPOINTS: dict[str, type[Body]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/tokenize": TokenizeBody,
}
GETS = ("/v1/models", "/v1/models/{model_id}", "/health", "/ready", "/metrics")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "developer"]),
     "content": st.text(max_size=30) | JSON},
    optional={"tool_calls": JSON, "tool_call_id": st.text(max_size=5), "name": JSON},
)  # fmt: skip
SCHEMA = st.sampled_from(
    [{}, {"type": "object"}, {"type": "string", "maxLength": 5}, {"enum": [1, "a"]}, {"$ref": "#"},
     {"type": "nonsense"}, {"pattern": "("}, {"type": "integer", "minimum": 9, "maximum": 1}]
)  # fmt: skip
TOOL = st.builds(
    lambda name, schema: {"type": "function", "function": {"name": name, "parameters": schema}},
    st.text(max_size=8),
    SCHEMA,
)
PLAUSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "messages": st.lists(MESSAGE, max_size=4),
    "prompt": st.text(max_size=40) | st.lists(st.integers(-1, 70), max_size=20) | JSON,
    "temperature": st.floats(-1, 3),
    "top_p": st.floats(-1, 2),
    "top_k": st.integers(-3, 100),
    "n": st.integers(-1, 4),
    "seed": st.integers(),
    "stop": st.text(max_size=3) | st.lists(st.text(max_size=3), max_size=20),
    "logprobs": st.booleans() | st.integers(-1, 22),
    "top_logprobs": st.integers(-1, 22),
    "logit_bias": st.dictionaries(st.integers(-5, 80).map(str), st.floats(-120, 120)),
    "stream": st.booleans(),
    "stream_options": st.just({"include_usage": True}),
    "echo": st.booleans(),
    "tools": st.lists(TOOL, max_size=3),
    "tool_choice": st.sampled_from(["none", "auto", "required", "any", {"type": "function"}]),
    "parallel_tool_calls": st.booleans(),
    "response_format": st.one_of(
        st.sampled_from([{"type": "text"}, {"type": "json_object"}, {"type": "x"}]),
        SCHEMA.map(lambda s: {"type": "json_schema", "json_schema": {"name": "n", "schema": s}}),
    ),
    "prediction": st.text(max_size=30).map(lambda text: {"type": "content", "content": text}),
    "min_tokens": st.integers(-1, 9),
    "repetition_penalty": st.floats(-1, 3),
    "stop_token_ids": st.lists(st.integers(-1, 70), max_size=3),
    "chat_template_kwargs": st.dictionaries(
        st.sampled_from(["enable_thinking", "tools", ""]), JSON
    ),
    "whiflash": st.dictionaries(st.sampled_from(["drafter", "max_draft", "timeout_ms"]), JSON),
}


def bodies(kind: type[Body]) -> st.SearchStrategy[dict[str, Any]]:
    """Mostly right, so that they get far: a base that works, and a few fields of any value."""
    base: dict[str, Any] = {"max_tokens": 6} if "max_tokens" in kind.model_fields else {}
    if "model" in kind.model_fields:
        base["model"] = "toy"
    base |= {"prompt": "abc"} if "prompt" in kind.model_fields else {
        "messages": [{"role": "user", "content": "abc"}]
    }  # fmt: skip
    names = sorted(kind.model_fields)
    extras = st.lists(
        st.sampled_from(names).flatmap(
            lambda name: st.tuples(st.just(name), PLAUSIBLE.get(name, JSON) | JSON)
        ),
        max_size=2,
    )
    return extras.map(lambda pairs: {**base, **dict(pairs), **bounded(dict(pairs))})


def bounded(fields: dict[str, Any]) -> dict[str, Any]:
    """Long answers say nothing here and take long."""
    return {
        name: min(value, 8)
        for name, value in fields.items()
        if name in ("max_tokens", "max_completion_tokens") and type(value) is int
    }


def check_response(status: int, text: str, is_stream: bool) -> None:
    assert status < 500, text
    assert "Traceback" not in text
    if status >= 400:
        error = json.loads(text)["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["message"]
    elif is_stream:
        assert text.endswith("data: [DONE]\n\n"), text[-500:]


def fuzz(http: httpx.Client, path: str, num_cases: int) -> None:
    @settings(max_examples=num_cases, deadline=None, database=None, phases=PHASES,
              suppress_health_check=QUIET, derandomize=num_cases < NUM_SOAK)  # fmt: skip
    @given(bodies(ENDPOINTS[path]) | bodies(ENDPOINTS[path]) | JSON | st.binary(max_size=60))
    def run(body: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = http.post(path, content=raw, headers={"content-type": "application/json"})
        is_stream = answer.headers["content-type"].startswith("text/event-stream")
        statuses[answer.status_code] += 1
        check_response(answer.status_code, answer.text, is_stream)

    statuses: Counter[int] = Counter()
    run()
    assert statuses[200] > num_cases / 20, f"too few got through: {statuses}"
    assert statuses[400] > num_cases / 20, f"too few were refused: {statuses}"


def fuzz_schema(server: HttpServer, http: httpx.Client, path: str, num_cases: int) -> None:
    """From the OpenAPI document, by schemathesis."""
    schema = schemathesis.openapi.from_dict(server.app.openapi())
    schema.config.generation.update(modes=list(GenerationMode))
    operation = schema[path]["POST" if path in ENDPOINTS else "GET"]

    @settings(max_examples=num_cases, deadline=None, database=None, phases=PHASES,
              suppress_health_check=QUIET, derandomize=num_cases < NUM_SOAK)  # fmt: skip
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        body = case.body
        if isinstance(body, dict):
            body = {**body, "max_tokens": 6} if "max_tokens" in body or "model" in body else body
            raw = json.dumps(body, default=str).encode()
        else:
            raw = b"" if body is None else str(body).encode("utf-8", "replace")
        answer = http.request(
            case.method,
            case.formatted_path if case.path_parameters else path,
            content=raw if path in ENDPOINTS else None,
            headers={"content-type": "application/json"},
        )
        is_stream = answer.headers["content-type"].startswith("text/event-stream")
        check_response(answer.status_code, answer.text, is_stream)

    run()


def after(server: HttpServer, http: httpx.Client) -> None:
    """Nothing was left behind, and it still answers."""
    body = {"model": "toy", "prompt": "abc", "max_tokens": 4, "temperature": 0}
    assert http.post("/v1/completions", json=body).status_code == 200
    assert server.service.load().waiting == 0


@pytest.mark.parametrize("path", ENDPOINTS)
def test_random_bodies(server: HttpServer, http: httpx.Client, path: str) -> None:
    fuzz(http, path, NUM_CASES)
    after(server, http)


@pytest.mark.parametrize("path", [*ENDPOINTS, *GETS])
def test_bodies_from_the_schema(server: HttpServer, http: httpx.Client, path: str) -> None:
    fuzz_schema(server, http, path, NUM_CASES if path in ENDPOINTS else 2 * NUM_CASES)
    after(server, http)


@pytest.mark.soak
@pytest.mark.parametrize("path", ENDPOINTS)
def test_many_random_bodies(server: HttpServer, http: httpx.Client, path: str) -> None:
    fuzz(http, path, NUM_SOAK)
    fuzz_schema(server, http, path, NUM_SOAK)
    after(server, http)
