"""The HTTP interface over a real connection: answers, errors, headers."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

USER = {"role": "user", "content": "abc"}
CHAT: dict[str, Any] = {"model": "toy", "messages": [USER], "seed": 5, "max_tokens": 12}
TEXT: dict[str, Any] = {"model": "toy", "prompt": "abc", "seed": 5, "max_tokens": 12}


def post(http: httpx.Client, path: str, body: dict[str, Any], **headers: str) -> Any:
    answer = http.post(path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Chunks of a stream, which must end with [DONE]."""
    with http.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    data = [line.removeprefix("data: ") for line in lines if not line.startswith(":")]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]


def refused(http: httpx.Client, path: str, body: Any, status: int) -> dict[str, Any]:
    answer = http.post(path, json=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert "Traceback" not in answer.text
    return dict(error)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_streamed_chat_adds_up_to_the_whole_one(
    http: httpx.Client, n: int, temperature: int
) -> None:
    body = {**CHAT, "n": n, "temperature": temperature, "logprobs": True, "top_logprobs": 2}
    whole = post(http, "/v1/chat/completions", body)
    streamed = events(http, "/v1/chat/completions", body)
    assert whole["id"].startswith("chatcmpl-")
    assert whole["system_fingerprint"] == streamed[0]["system_fingerprint"]
    for choice in whole["choices"]:
        parts = [c for chunk in streamed for c in chunk["choices"] if c["index"] == choice["index"]]
        text = "".join(part["delta"].get("content", "") for part in parts)
        assert text == choice["message"]["content"]
        assert parts[-1]["finish_reason"] == choice["finish_reason"] == "length"
        tokens = [
            entry["token"]
            for part in parts
            for entry in (part["logprobs"] or {"content": ()})["content"]
        ]
        assert tokens == [entry["token"] for entry in choice["logprobs"]["content"]]
        assert len(tokens) == 12


@pytest.mark.parametrize("prompt", ["abc", [3, 4, 5], ["abc", "d"], [[3, 4, 5], [6]]])
def test_a_streamed_completion_adds_up_to_the_whole_one(http: httpx.Client, prompt: Any) -> None:
    body = {**TEXT, "prompt": prompt, "n": 2, "logprobs": 1}
    whole = post(http, "/v1/completions", body)
    streamed = events(http, "/v1/completions", body)
    num_prompts = len(prompt) if isinstance(prompt[0], list) or len(prompt) == 2 else 1
    assert len(whole["choices"]) == 2 * num_prompts
    for choice in whole["choices"]:
        parts = [c for chunk in streamed for c in chunk["choices"] if c["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]


def test_ids_and_text_of_one_prompt_give_one_answer(http: httpx.Client) -> None:
    by_text = post(http, "/v1/completions", TEXT)["choices"][0]["text"]
    ids = post(http, "/tokenize", {"prompt": "abc"})["tokens"]
    assert post(http, "/v1/completions", {**TEXT, "prompt": ids})["choices"][0]["text"] == by_text
    echoed = post(http, "/v1/completions", {**TEXT, "echo": True})["choices"][0]["text"]
    assert echoed == "abc" + by_text


def test_nothing_about_drafts_changes_the_text(http: httpx.Client) -> None:
    """Also: a prediction, right or wrong, and its two numbers."""
    plain = post(http, "/v1/chat/completions", {**CHAT, "whiflash": {"drafter": "none"}})
    text = plain["choices"][0]["message"]["content"]
    for extra in (
        {},
        {"whiflash": {"drafter": "retrieval", "max_draft": 2}},
        {"prediction": {"type": "content", "content": text}},
        {"prediction": {"type": "content", "content": "zzzzzz"}},
    ):
        answer = post(http, "/v1/chat/completions", {**CHAT, **extra})
        assert answer["choices"][0]["message"]["content"] == text
    details = post(
        http,
        "/v1/chat/completions",
        {**CHAT, "prediction": {"type": "content", "content": text + "~"}},
    )["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"] >= 12
    assert details["accepted_prediction_tokens"] >= 10


def test_the_told_seed_repeats_a_sampled_answer(http: httpx.Client) -> None:
    unseeded = {key: value for key, value in CHAT.items() if key != "seed"}
    first = post(http, "/v1/chat/completions", unseeded)
    again = post(http, "/v1/chat/completions", {**CHAT, "seed": first["whiflash"]["seed"]})
    assert again["choices"][0]["message"] == first["choices"][0]["message"]


def test_a_second_turn_finds_its_prefix(http: httpx.Client) -> None:
    long = {"role": "user", "content": "abc" * 20}
    first = post(http, "/v1/chat/completions", {**CHAT, "messages": [long], "user": "prefix"})
    message = first["choices"][0]["message"]
    messages = [long, message, {"role": "user", "content": "d"}]
    second = post(http, "/v1/chat/completions", {**CHAT, "messages": messages, "user": "prefix"})
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < second["usage"]["prompt_tokens"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_an_idempotency_key_joins_the_first_answer(http: httpx.Client) -> None:
    unseeded = {key: value for key, value in CHAT.items() if key != "seed"}
    headers = {"idempotency-key": "k1"}
    texts = {
        post(http, "/v1/chat/completions", unseeded, **headers)["choices"][0]["message"]["content"]
        for _ in range(3)
    }
    assert len(texts) == 1
    answer = http.post("/v1/chat/completions", json={**unseeded, "n": 2}, headers=headers)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("change", "status", "param", "code"),
    [
        ({"model": "gpt-5"}, 404, "model", "model_not_found"),
        ({"mood": "good"}, 400, "mood", "unknown_parameter"),
        ({"temperature": -1}, 400, "temperature", None),
        ({"logit_bias": {"64": 1}}, 400, "logit_bias", None),
        ({"stop_token_ids": [64]}, 400, "stop_token_ids", None),
        ({"whiflash": {"drafter": "magic"}}, 400, "whiflash.drafter", None),
        (
            {"messages": [{"role": "user", "content": "a" * 600}]},
            400,
            "messages",
            "context_length_exceeded",
        ),
        ({"min_tokens": 13}, 400, "min_tokens", None),
        ({"messages": [USER, {"role": "system", "content": "x"}]}, 400, "messages", None),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_refusals_have_openais_shape(
    http: httpx.Client,
    change: dict[str, Any],
    status: int,
    param: str | None,
    code: str | None,
    is_stream: bool,
) -> None:
    error = refused(http, "/v1/chat/completions", {**CHAT, **change, "stream": is_stream}, status)
    assert (error["param"], error["code"]) == (param, code)


def test_a_deadline_is_a_504_and_within_a_stream_the_last_event(http: httpx.Client) -> None:
    body = {**CHAT, "max_tokens": 490, "ignore_eos": True, "whiflash": {"timeout_ms": 40}}
    assert refused(http, "/v1/chat/completions", body, 504)["code"] == "deadline_exceeded"
    with http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    last = json.loads(lines[-1].removeprefix("data: "))
    assert last["error"]["code"] == "deadline_exceeded"


def test_bodies_are_json_objects_of_bounded_size(http: httpx.Client) -> None:
    path = "/v1/chat/completions"
    json_type = {"content-type": "application/json"}
    for content in (b"", b"{", b"[1]", b"\xff\xfe", b"[" * 10_000):
        assert http.post(path, content=content, headers=json_type).status_code == 400
    assert http.post(path, content=b"{}").status_code == 415
    large = b'{"model": "' + b"x" * (17 << 20)
    answer = http.post(path, content=large, headers=json_type)
    assert answer.status_code == 413
    answer = http.post(path, content=iter([large]), headers=json_type)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"


def test_paths_and_methods_that_do_not_exist(http: httpx.Client) -> None:
    assert http.get("/v1/assistants").json()["error"]["code"] == "not_found"
    wrong = http.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert wrong.json()["error"]["type"] == "invalid_request_error"
    assert http.get("/docs").status_code == 404


def test_models_health_ready_metrics(http: httpx.Client) -> None:
    """llama.cpp #25345, #24507: drafting silently not engaged; /health lists the arms."""
    (model,) = http.get("/v1/models").json()["data"]
    assert (model["id"], model["object"], model["owned_by"]) == ("toy", "model", "whiflash")
    assert http.get("/v1/models/toy").json() == model
    assert http.get("/v1/models/a/b").json()["error"]["code"] == "model_not_found"
    assert {"none", "retrieval"} <= set(http.get("/health").json()["arms"])
    assert http.get("/ready").json() == {"ready": True}
    assert "whiflash_requests_total" in http.get("/metrics").text


def test_every_answer_has_a_request_id(http: httpx.Client) -> None:
    for given, is_kept in (("mine-1", True), ("no spaces", False), ("x" * 200, False)):
        answer = http.get("/health", headers={"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) is is_kept
    one, another = (http.get("/nothing").headers["x-request-id"] for _ in range(2))
    assert one != another


def test_tokenize_is_what_a_chat_is_charged_for(http: httpx.Client) -> None:
    told = post(http, "/tokenize", {"messages": [USER], "model": "toy"})
    usage = post(http, "/v1/chat/completions", CHAT)["usage"]
    assert told["count"] == len(told["tokens"]) == usage["prompt_tokens"]
    assert told["max_model_len"] == 512
    assert refused(http, "/tokenize", {}, 400)["param"] == "prompt"
