"""Clients that leave, stall, send rubbish or ask for what is not theirs."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from whiflash.api.v1 import generation_service_pb2 as pb
from whiflash.client import (
    AsyncClient,
    CallError,
    CallSettings,
    CancelledError,
    Client,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    Piece,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)
from whiflash.client.options import call_message
from whiflash.core.errors import NumericsError
from whiflash.serving.auth import Authenticator
from whiflash.serving.caller import Caller, Scope
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.serving.generation import ServiceLimits
from whiflash.serving.grpc.server import GrpcLimits
from whiflash.serving.keys import ApiKey, KeyLimits, digest_of
from whiflash.testing.backends import ScriptedBackend
from whiflash.testing.grpc_server import GrpcTestServer

GENERATE = "/whiflash.api.v1.GenerationService/Generate"
ONCE = "/whiflash.api.v1.GenerationService/GenerateOnce"
LONG: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True, "temperature": 1.0}
SECRETS = {name: f"wf-{name}-{'x' * 40}" for name in ("one", "two", "debug")}


def key(name: str, tenant: str, *scopes: Scope) -> ApiKey:
    caller = Caller(tenant, "default", frozenset(scopes), name)
    return ApiKey(digest_of(SECRETS[name]), caller, KeyLimits())


@pytest.fixture
def guarded() -> Iterator[GrpcTestServer]:
    """A slow scripted answer behind keys of two tenants."""
    auth = Authenticator(
        [
            key("one", "a", Scope.GENERATE),
            key("two", "b", Scope.GENERATE),
            key("debug", "a", Scope.GENERATE, Scope.DEBUG),
        ]
    )
    backend = ScriptedBackend("an answer " * 100, round_s=0.01)
    with GrpcTestServer(backend, auth) as server:
        yield server


def test_random_disconnects_leave_nothing_behind(
    server: GrpcTestServer, wait_idle: Callable[[], None]
) -> None:
    """sglang #36333: a client that disconnects must not leave a running request behind."""
    draw = random.Random(0)

    async def leave(client: AsyncClient, number: int) -> None:
        events = client.stream("tell", seed=number, **LONG)
        left = draw.randrange(4)
        async for event in events:
            left -= isinstance(event, Piece)
            if left <= 0:
                break
        await events.aclose()

    async def run() -> str:
        async with AsyncClient(server.target) as staying, AsyncClient(server.target) as leaving:
            stays = asyncio.create_task(staying.generate("stay", seed=1, **LONG))
            for start in range(0, 200, 20):
                await asyncio.gather(*(leave(leaving, start + i) for i in range(20)))
            return (await stays).choices[0].text

    text = asyncio.run(run())
    wait_idle()
    with Client(server.target) as client:
        assert client.generate("stay", seed=1, **LONG).choices[0].text == text
    wait_idle()
    server.call(server.service.check_integrity)


def test_killed_connections_leave_nothing_behind(
    server: GrpcTestServer, wait_idle: Callable[[], None]
) -> None:
    for number in range(10):
        channel = grpc.insecure_channel(
            server.target, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        call = channel.unary_stream(GENERATE)(request_bytes(seed=number, **LONG))
        next(iter(call))
        channel.close()
    wait_idle()


def request_bytes(**options: Any) -> bytes:
    call = call_message("tell", options)  # type: ignore[arg-type]
    return pb.GenerateRequest(call=call).SerializeToString()


def test_a_client_that_stops_reading_holds_nobody_up(
    toy_backend: EmbeddedBackend, wait_idle: Callable[[], None]
) -> None:
    """The stalled calls' answers are done and their slots free, although nobody reads them."""
    limits = GrpcLimits(stall_limit_s=1.0)
    options = [("grpc.http2.lookahead_bytes", 1), ("grpc.use_local_subchannel_pool", 1)]
    with GrpcTestServer(toy_backend, limits=limits) as server:
        channel = grpc.insecure_channel(server.target, options=options)
        unread = [
            channel.unary_stream(GENERATE)(request_bytes(seed=i, logprobs=20, **LONG))
            for i in range(8)
        ]
        with Client(server.target) as client:
            begin = time.monotonic()
            assert client.generate("tell", max_tokens=20).choices[0].text
            assert time.monotonic() - begin < 20
        wait_idle(30.0)
        assert all(not call.done() or call.code() for call in unread)
        channel.close()


def test_a_reader_whose_window_is_full_is_given_up() -> None:
    """After the stall limit its place is another's; should it ever read, it gets a status."""
    backend = ScriptedBackend("x" * 400_000, round_tokens=4000, context_limit=500_000)
    server = GrpcTestServer(backend, limits=GrpcLimits(stall_limit_s=0.5, max_concurrent=1))
    with server, socket.create_connection(("127.0.0.1", server.server.port)) as raw:
        raw.settimeout(10)
        raw.sendall(raw_call(request_bytes(max_tokens=400_000)))
        with Client(server.target, max_retries=0) as client:
            end, is_served = time.monotonic() + 10, False
            while not is_served and time.monotonic() < end:
                try:
                    is_served = bool(client.generate("tell", max_tokens=3).choices)
                except ResourceExhaustedError:
                    time.sleep(0.1)
        assert is_served, "the stalled call keeps its place"
        for stream in (0, 1):
            raw.sendall(frame(8, 0, stream, (1 << 24).to_bytes(4, "big")))
        assert 60_000 < read_to_end_of_stream(raw) < 200_000


def read_to_end_of_stream(raw: socket.socket) -> int:
    """Bytes of data frames until the trailers of stream 1."""
    source, num_bytes = raw.makefile("rb"), 0
    while head := source.read(9):
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        source.read(size)
        num_bytes += size if kind == 0 else 0
        if head[8] == 1 and kind == 1 and flags & 1:
            return num_bytes
    raise AssertionError("the connection ended before the stream")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An HTTP/2 frame."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def raw_call(message: bytes) -> bytes:
    """One HTTP/2 request as bytes, from a client that will never read nor grant window."""

    def literal(name: str, value: str) -> bytes:
        raw_name, raw_value = name.encode(), value.encode()
        return bytes([0, len(raw_name)]) + raw_name + bytes([len(raw_value)]) + raw_value

    pairs = {
        ":method": "POST",
        ":scheme": "http",
        ":path": GENERATE,
        ":authority": "test",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    headers = b"".join(literal(name, value) for name, value in pairs.items())
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(4, 0, 0, b"")
        + frame(1, 4, 1, headers)
        + frame(0, 1, 1, body)
    )


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_messages_are_refused_or_answered(server: GrpcTestServer, seed: int) -> None:
    draw = random.Random(seed)
    good = request_bytes(max_tokens=3, stop=["a", "b"], logit_bias={5: 1.0})
    codes: set[grpc.StatusCode] = set()
    with grpc.insecure_channel(server.target) as channel:
        for _ in range(125):
            raw = bytearray(good if draw.random() < 0.7 else draw.randbytes(draw.randrange(200)))
            for _ in range(draw.randrange(6)):
                if raw:
                    raw[draw.randrange(len(raw))] = draw.randrange(256)
            path = draw.choice([GENERATE, ONCE])
            codes.add(status_of_raw(channel, path, bytes(raw)))
    allowed = {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }
    assert codes <= allowed, codes
    assert grpc.StatusCode.INVALID_ARGUMENT in codes


def status_of_raw(channel: grpc.Channel, path: str, raw: bytes) -> grpc.StatusCode:
    try:
        if path == GENERATE:
            list(channel.unary_stream(path)(raw, timeout=20))
        else:
            channel.unary_unary(path)(raw, timeout=20)
    except grpc.RpcError as error:
        return error.code()  # type: ignore[attr-defined, no-any-return]
    return grpc.StatusCode.OK


def test_garbage_on_the_port_hurts_nobody(server: GrpcTestServer, client: Client) -> None:
    for size in (1, 100, 100_000):
        with socket.create_connection(("127.0.0.1", server.server.port)) as raw:
            try:
                raw.sendall(os.urandom(size))
            except OSError:
                continue
    assert client.generate("tell", max_tokens=2).choices[0].token_ids


def test_unknown_fields_are_refused(server: GrpcTestServer) -> None:
    """A newer client's parameter would change the text; it must not be lost without a word."""
    raw = request_bytes(max_tokens=3) + b"\xfa\x3e\x01x"
    with grpc.insecure_channel(server.target) as channel:
        assert status_of_raw(channel, GENERATE, raw) is grpc.StatusCode.INVALID_ARGUMENT


def test_oversized_messages_are_refused(toy_backend: EmbeddedBackend) -> None:
    limits = GrpcLimits(max_request_bytes=10_000)
    with (
        GrpcTestServer(toy_backend, limits=limits) as server,
        Client(server.target) as client,
    ):
        with pytest.raises(ResourceExhaustedError, match="larger than max"):
            client.generate("x" * 20_000)
        assert client.limits().max_request_bytes == 10_000


BAD: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"temperature": -1.0}),
    ("temperature", {"temperature": float("nan")}),
    ("top_p", {"top_p": 0.0}),
    ("min_p", {"min_p": 1.5}),
    ("repetition_penalty", {"repetition_penalty": 0.0}),
    ("presence_penalty", {"presence_penalty": 3.0}),
    ("min_tokens", {"min_tokens": 5, "max_tokens": 2}),
    ("max_tokens", {"max_tokens": 0}),
    ("n", {"n": 0}),
    ("n", {"n": 129}),
    ("logprobs", {"logprobs": 21}),
    ("stop", {"stop": [""]}),
    ("logit_bias", {"logit_bias": {1: 101.0}}),
    ("logit_bias", {"logit_bias": {10**6: 1.0}}),
    ("drafter", {"drafter": "nobody"}),
    ("forced_ids", {"forced_ids": [1], "n": 2, "seed": 1}),
]


@pytest.mark.parametrize(
    ("param", "options"), BAD, ids=[f"{p}-{i}" for i, (p, _) in enumerate(BAD)]
)
def test_a_bad_parameter_is_named(client: Client, param: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.generate("tell", CallSettings(request_id="bad-1"), **options)
    assert caught.value.param == param
    assert caught.value.request_id == "bad-1"
    with pytest.raises(InvalidArgumentError) as caught:
        list(client.stream("tell", **options))
    assert caught.value.param == param


def test_a_prompt_is_needed(client: Client) -> None:
    for prompt in ("", []):
        with pytest.raises(InvalidArgumentError) as caught:
            client.generate(prompt)
        assert caught.value.param == "prompt"


def test_another_model_is_not_found(client: Client) -> None:
    with pytest.raises(NotFoundError) as caught:
        client.generate("tell", model="gpt-4o")
    assert caught.value.param == "model"


def test_deadlines(client: Client, wait_idle: Callable[[], None]) -> None:
    begin = time.monotonic()
    with pytest.raises(DeadlineError):
        list(client.stream("tell", CallSettings(timeout_s=0.1), n=4, **LONG))
    with pytest.raises(DeadlineError):
        client.generate("tell", CallSettings(timeout_s=0.1), n=4, **LONG)
    assert time.monotonic() - begin < 5
    wait_idle()


def test_cancel_by_request_id(guarded: GrpcTestServer) -> None:
    settings = CallSettings(request_id="job-7")
    with (
        Client(guarded.target, api_key=SECRETS["one"]) as owner,
        Client(guarded.target, api_key=SECRETS["two"]) as other,
    ):
        events = owner.stream("tell", settings)
        next(events)
        next(events)
        with pytest.raises(NotFoundError):
            other.cancel("job-7")
        got = [next(events) for _ in range(3)]
        assert got, "another tenant's cancel has no effect"
        owner.cancel("job-7")
        with pytest.raises(CancelledError, match="cancelled") as caught:
            list(events)
        assert caught.value.request_id == "job-7"
        with pytest.raises(NotFoundError):
            owner.cancel("job-7")


def test_cancel_ends_a_waiting_unary_call(guarded: GrpcTestServer) -> None:
    failures: list[CallError] = []
    with Client(guarded.target, api_key=SECRETS["one"]) as owner:

        def ask() -> None:
            try:
                owner.generate("tell", CallSettings(request_id="job-8"))
            except CallError as error:
                failures.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        for _ in range(200):
            time.sleep(0.02)
            try:
                owner.cancel("job-8")
                break
            except NotFoundError:
                continue
        asking.join(10)
    assert [type(failure) for failure in failures] == [CancelledError]


def test_keys(guarded: GrpcTestServer) -> None:
    for wrong in (None, "", "wf-wrong", SECRETS["one"] + "x"):
        with (
            Client(guarded.target, api_key=wrong) as client,
            pytest.raises(UnauthenticatedError),
        ):
            client.generate("tell", max_tokens=1)
    with (
        Client(guarded.target, api_key=SECRETS["one"]) as client,
        pytest.raises(PermissionDeniedError, match="admin"),
    ):
        client.plan()


def test_figures_by_arm_need_scope_debug(guarded: GrpcTestServer) -> None:
    for name, sees in (("one", False), ("debug", True)):
        with Client(guarded.target, api_key=SECRETS[name]) as client:
            events = list(client.stream("tell", max_tokens=9))
            pieces = [event for event in events if isinstance(event, Piece)]
            usage = client.generate("tell", max_tokens=9).choices[0].ended.usage
            assert all(piece.HasField("arm") is sees for piece in pieces)
            assert bool(usage.arms) is sees
            assert bool(usage.rounds) is sees


def test_a_full_queue_asks_to_come_back() -> None:
    limits = ServiceLimits(max_waiting=1, max_tenant_waiting=2)
    backend = ScriptedBackend("x" * 3000, round_s=0.02, slots=1)
    with GrpcTestServer(backend, service_limits=limits) as server:
        channel, calls = grpc.insecure_channel(server.target), []
        for num_waiting in range(2):
            calls.append(channel.unary_stream(GENERATE)(request_bytes()))
            end = time.monotonic() + 10
            while server.call(lambda: server.service.queue.num_waiting) < num_waiting:
                assert time.monotonic() < end
                time.sleep(0.01)
            time.sleep(0.1)
        with (
            Client(server.target, max_retries=0) as client,
            pytest.raises(ResourceExhaustedError) as caught,
        ):
            list(client.stream("tell"))
        assert caught.value.retry_after_s is not None
        channel.close()


def test_a_draining_server_sends_its_clients_away() -> None:
    backend = ScriptedBackend("x" * 3000, round_s=0.02)
    with GrpcTestServer(backend) as server, Client(server.target, max_retries=0) as client:
        events = client.stream("tell")
        next(events)
        assert not server.drain(0.1)
        with pytest.raises(UnavailableError) as caught:
            list(events)
        assert caught.value.retry_after_s is not None
        with pytest.raises(UnavailableError):
            client.generate("tell")
        assert not client.load().is_ready


def test_a_fault_tells_nothing_of_itself() -> None:
    for fault, message in (
        (ValueError("/secret/path"), "internal error"),
        (NumericsError("NaN logits"), "NaN logits"),
    ):
        backend = ScriptedBackend("x" * 30, fault=fault)
        with GrpcTestServer(backend) as server, Client(server.target) as client:
            with pytest.raises(CallError, match=message) as caught:
                list(client.stream("tell"))
            assert caught.value.code is grpc.StatusCode.INTERNAL
            assert "secret" not in str(caught.value)


def test_idempotent_calls_share_one_answer() -> None:
    backend = ScriptedBackend("x" * 60, round_s=0.01)
    with GrpcTestServer(backend) as server, Client(server.target) as client:
        options: dict[str, Any] = {"idempotency_key": "k", "seed": 4, "temperature": 1.0}
        texts = {client.generate("tell", **options).choices[0].text for _ in range(3)}
        assert len(texts) == 1
        assert len(backend.requests) == 1
        with pytest.raises(InvalidArgumentError) as caught:
            client.generate("tell", **{**options, "seed": 5})
        assert caught.value.param == "idempotency_key"


def test_metadata_comes_back(server: GrpcTestServer) -> None:
    with grpc.insecure_channel(server.target) as channel:
        call = channel.unary_stream(GENERATE)(
            request_bytes(max_tokens=1), metadata=(("x-request-id", "abc"),)
        )
        assert dict(call.initial_metadata())["x-request-id"] == "abc"
        list(call)
        assert dict(call.trailing_metadata())["x-request-id"] == "abc"
        odd = channel.unary_stream(GENERATE)(
            request_bytes(max_tokens=1), metadata=(("x-request-id", "not ok!"),)
        )
        assert dict(odd.initial_metadata())["x-request-id"].startswith("req-")
        list(odd)
