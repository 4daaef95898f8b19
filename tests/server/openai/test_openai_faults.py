"""Clients that leave, stall, have the wrong key, come too often, or come when it is too late."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from whiflash import Engine
from whiflash.serving.auth import Authenticator
from whiflash.serving.caller import Caller, Scope
from whiflash.serving.generation import ServiceLimits
from whiflash.serving.keys import ApiKey, KeyLimits, digest_of
from whiflash.serving.openai.edge import HttpLimits
from whiflash.testing.http_server import HttpServer

PATH = "/v1/chat/completions"
LONG: dict[str, Any] = {
    "model": "toy",
    "messages": [{"role": "user", "content": "abc"}],
    "max_tokens": 480,
    "ignore_eos": True,
}
NUM_LEAVERS = 200
WAIT_S = 20.0


def wait_for(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.01)


def raw_request(body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def read_all(connection: socket.socket) -> bytes:
    connection.settimeout(WAIT_S)
    return b"".join(iter(lambda: connection.recv(1 << 20), b""))


def gauge(http: httpx.Client, name: str) -> float:
    found = re.search(rf"^whiflash_{name} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def cancelled(http: httpx.Client) -> float:
    pattern = r'^whiflash_requests_total\{outcome="cancelled"\} (\S+)$'
    found = re.search(pattern, http.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def leave(server: HttpServer, number: int) -> None:
    """A stream or a plain request, left after a random part of it was sent or read."""
    dice = random.Random(number)
    request = raw_request({**LONG, "seed": number, "stream": dice.random() < 0.7})
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as connection:
        if dice.random() < 0.1:
            connection.sendall(request[: dice.randrange(len(request))])
            return
        connection.sendall(request)
        time.sleep(dice.random() * 0.03)
        if dice.random() < 0.5:
            connection.recv(dice.randrange(1, 2000))


def test_those_who_leave_free_all_and_disturb_nobody(
    engine: Engine, server: HttpServer, http: httpx.Client
) -> None:
    stayers = [{**LONG, "seed": seed, "temperature": seed % 2} for seed in range(6)]

    def ask(body: dict[str, Any]) -> str:
        answer = http.post(PATH, json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])

    before = cancelled(http)
    alone = [ask(body) for body in stayers]
    with ThreadPoolExecutor(10) as pool:
        leaving = [pool.submit(leave, server, number) for number in range(NUM_LEAVERS)]
        beside = list(pool.map(ask, stayers))
        for future in leaving:
            future.result()
    assert beside == alone
    wait_for(lambda: cancelled(http) > before + NUM_LEAVERS / 4, "calls that were cut short")
    wait_for(lambda: not engine.core.running, "sequences of those who left")
    wait_for(lambda: gauge(http, "requests_in_flight") == 0, "calls of those who left")
    assert server.backend.load().kv_bytes == 0
    assert server.service.load().waiting == 0


def test_one_that_stops_reading_holds_up_nobody_and_is_dropped(engine: Engine) -> None:
    limits = HttpLimits(stall_limit_s=0.5)
    with HttpServer(engine, "toy", http_limits=limits) as server:
        stalled = []
        for _ in range(3):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", server.port))
            body = {**LONG, "stream": True, "n": 8, "logprobs": True, "top_logprobs": 20}
            connection.sendall(raw_request(body))
            stalled.append(connection)
        with httpx.Client(base_url=server.url, timeout=WAIT_S, trust_env=False) as http:
            assert http.post(PATH, json={**LONG, "max_tokens": 5}).status_code == 200
            wait_for(lambda: not engine.core.running, "the stalled ones")
            wait_for(lambda: gauge(http, "requests_in_flight") == 0, "the stalled calls")
            time.sleep(2 * limits.stall_limit_s)
        for connection in stalled:
            received = read_all(connection)
            assert b"data: " in received
            assert b"[DONE]" not in received
            connection.close()


def key(secret: str, tenant: str, *scopes: Scope, **limits: Any) -> ApiKey:
    caller = Caller(tenant, "p", frozenset(scopes), f"{tenant}-key")
    return ApiKey(digest_of(secret), caller, KeyLimits(**limits))


@pytest.fixture(scope="module")
def keyed(engine: Engine) -> Iterator[HttpServer]:
    auth = Authenticator(
        [
            key("user", "one", Scope.GENERATE),
            key("other", "two", Scope.GENERATE),
            key("reader", "three", Scope.STORE),
            key("debug", "one", Scope.GENERATE, Scope.DEBUG),
            key("slow", "four", Scope.GENERATE, max_in_flight=1),
            key("poor", "five", Scope.GENERATE, tokens_per_minute=60),
        ]
    )
    with HttpServer(engine, "toy", auth) as server:
        yield server


def client(server: HttpServer, secret: str | None) -> httpx.Client:
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    return httpx.Client(base_url=server.url, timeout=WAIT_S, headers=headers, trust_env=False)


SHORT = {**LONG, "max_tokens": 8}


@pytest.mark.parametrize(
    ("secret", "status", "code"),
    [
        (None, 401, "invalid_api_key"),
        ("wrong", 401, "invalid_api_key"),
        ("reader", 403, "permission_denied"),
        ("user", 200, None),
    ],
)
def test_keys_and_scopes(
    keyed: HttpServer, secret: str | None, status: int, code: str | None
) -> None:
    with client(keyed, secret) as http:
        for path, body in ((PATH, SHORT), ("/tokenize", {"prompt": "a"})):
            answer = http.post(path, json=body)
            assert answer.status_code == status
            assert code is None or answer.json()["error"]["code"] == code
        expected = 401 if status == 401 else 200
        assert http.get("/v1/models").status_code == expected
        assert http.get("/health").status_code == http.get("/ready").status_code == 200


def test_arms_and_metrics_need_the_debug_scope(keyed: HttpServer) -> None:
    with client(keyed, "user") as user, client(keyed, "debug") as debug:
        assert user.get("/metrics").status_code == 403
        assert debug.get("/metrics").status_code == 200
        assert user.post(PATH, json=SHORT).json()["whiflash"].keys() == {"seed"}
        assert "arms" in debug.post(PATH, json=SHORT).json()["whiflash"]


def test_tenants_share_no_prefix_and_no_idempotency_key(keyed: HttpServer) -> None:
    prompt = [{"role": "user", "content": "secret plan " * 5}]
    headers = {"idempotency-key": "shared"}
    seen = []
    for secret in ("user", "user", "other"):
        with client(keyed, secret) as http:
            answer = http.post(PATH, json={**SHORT, "messages": prompt}, headers=headers).json()
            cached = http.post(PATH, json={**SHORT, "messages": prompt}).json()["usage"]
            seen.append((answer["whiflash"]["seed"], answer["usage"], cached))
    assert seen[0][0] == seen[1][0]
    assert seen[2][0] != seen[0][0]
    assert seen[2][1]["prompt_tokens_details"]["cached_tokens"] == 0
    assert seen[1][2]["prompt_tokens_details"]["cached_tokens"] > 0


def test_limits_of_a_key_are_429_with_retry_after(keyed: HttpServer) -> None:
    with client(keyed, "poor") as http:
        answers = [http.post(PATH, json={**SHORT, "max_tokens": 60}) for _ in range(3)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert answers[-1].json()["error"]["code"] == "rate_limit_exceeded"


def test_a_full_queue_is_503_with_retry_after_and_waiting_is_told(engine: Engine) -> None:
    limits = ServiceLimits(max_waiting=2, queued_s=0.02)
    with HttpServer(engine, "toy", service_limits=limits) as server:
        body = {**LONG, "max_tokens": 150, "n": 8, "stream": True}
        comments, statuses = [], []
        with client(server, None) as http:
            together = threading.Barrier(12)

            def ask() -> None:
                together.wait(WAIT_S)
                with http.stream("POST", PATH, json=body) as answer:
                    statuses.append((answer.status_code, answer.headers.get("retry-after")))
                    comments.extend(line for line in answer.iter_lines() if line.startswith(":"))

            threads = [threading.Thread(target=ask) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_S)
    assert (503, "1") in statuses
    assert (200, None) in statuses
    assert comments
    assert all(re.fullmatch(r": queued for \d+ s", line) for line in comments)


def test_streams_that_are_open_at_the_end_are_told(engine: Engine) -> None:
    """Drain: what is open ends within its time or hears why; new calls are a 503."""
    with HttpServer(engine, "toy") as server, client(server, None) as http:
        lines: list[str] = []

        def read() -> None:
            body = {**LONG, "n": 8, "stream": True}
            with http.stream("POST", PATH, json=body) as answer:
                lines.extend(line for line in answer.iter_lines() if line)

        reader = threading.Thread(target=read)
        reader.start()
        wait_for(lambda: bool(engine.core.running), "the stream's start")
        is_calm = server.call(server.service.drain(0.01))
        reader.join(WAIT_S)
        refusal = http.post(PATH, json=SHORT)
        assert http.get("/ready").status_code == 503
    last = json.loads(lines[-1].removeprefix("data: ")) if "[DONE]" not in lines[-1] else {}
    assert is_calm or last["error"]["code"] == "unavailable"
    assert refusal.status_code == 503
    assert int(refusal.headers["retry-after"]) >= 1
