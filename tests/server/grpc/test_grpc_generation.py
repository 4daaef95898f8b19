"""Generation over a real connection equals the engine's own answer."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from whiflash.client import (
    AsyncClient,
    CallSettings,
    Chat,
    Client,
    Ended,
    FinishReason,
    Piece,
    Started,
)
from whiflash.core.errors import ConfigError
from whiflash.core.params import SamplingParams
from whiflash.engine.engine import Engine
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.testing.grpc_server import GrpcTestServer

TEXT = "read the file and write the file"
SAMPLED: dict[str, Any] = {
    "temperature": 0.9,
    "top_p": 0.95,
    "top_k": 40,
    "seed": 2**100 + 3,
    "max_tokens": 60,
    "ignore_eos": True,
}


def engine_answer(engine: Engine, **options: Any) -> tuple[str, tuple[int, ...]]:
    choice = engine.generate(TEXT, SamplingParams(**options)).choices[0]
    return choice.text, choice.token_ids


def test_stream_once_and_engine_agree(client: Client, toy_engine: Engine) -> None:
    text, ids = engine_answer(toy_engine, **SAMPLED)
    events = list(client.stream(TEXT, **SAMPLED))
    pieces = [event for event in events if isinstance(event, Piece)]
    assert "".join(piece.text for piece in pieces) == text
    assert tuple(token for piece in pieces for token in piece.token_ids) == ids
    once = client.generate(TEXT, **SAMPLED)
    assert (once.choices[0].text, tuple(once.choices[0].token_ids)) == (text, ids)
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert ended.finish_reason == FinishReason.FINISH_REASON_LENGTH
    assert ended.usage.completion_tokens == 60
    assert ended.usage.prompt_tokens == len(toy_engine.tokenizer.encode(TEXT))


def test_drafter_pin_does_not_change_the_text(client: Client) -> None:
    texts = {client.generate(TEXT, drafter=arm, **SAMPLED).choices[0].text for arm in client.arms()}
    assert len(texts) == 1


def test_exact_ids_text_and_tokenize_agree(client: Client) -> None:
    ids = client.tokenize(TEXT)
    by_ids = client.generate(ids, max_tokens=12).choices[0].text
    assert by_ids == client.generate(TEXT, max_tokens=12).choices[0].text


def test_a_drawn_seed_is_returned_and_repeats_the_text(client: Client) -> None:
    first = client.generate(TEXT, temperature=1.0, max_tokens=30)
    seed = (first.started.seed.high << 64) | first.started.seed.low
    again = client.generate(TEXT, temperature=1.0, max_tokens=30, seed=seed)
    assert again.choices[0].token_ids == first.choices[0].token_ids


def test_several_choices_and_logprobs(client: Client) -> None:
    response = client.generate(TEXT, n=3, logprobs=2, temperature=1.0, max_tokens=8, seed=1)
    assert [choice.ended.index for choice in response.choices] == [0, 1, 2]
    for choice in response.choices:
        assert [entry.token_id for entry in choice.logprobs] == list(choice.token_ids)
        assert all(len(entry.top) == 2 for entry in choice.logprobs)


def test_a_chat_has_a_message_and_its_events_are_its_content(client: Client) -> None:
    chat = Chat([{"role": "user", "content": "hello"}])
    events = list(client.stream(chat, max_tokens=40))
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert ended.HasField("message")
    text = "".join(event.text for event in events if isinstance(event, Piece))
    assert ended.message.text == text


def test_cached_tokens_of_a_second_turn(client: Client) -> None:
    client.generate(TEXT * 3, max_tokens=4)
    usage = client.generate(TEXT * 3 + " again", max_tokens=4).choices[0].ended.usage
    assert usage.cached_tokens > 0


def test_arms_are_counted_for_the_local_caller(client: Client) -> None:
    usage = client.generate(TEXT, max_tokens=20).choices[0].ended.usage
    assert sum(arm.emitted + arm.ending_emitted for arm in usage.arms.values()) > 0


def test_async_client_streams_many_at_once(server: GrpcTestServer, client: Client) -> None:
    async def one(remote: AsyncClient, seed: int) -> str:
        events = remote.stream(TEXT, temperature=1.0, seed=seed, max_tokens=30)
        return "".join([event.text async for event in events if isinstance(event, Piece)])

    async def run() -> list[str]:
        async with AsyncClient(server.target) as remote:
            return await asyncio.gather(*(one(remote, seed) for seed in range(12)))

    together = asyncio.run(run())
    alone = [
        client.generate(TEXT, temperature=1.0, seed=seed, max_tokens=30).choices[0].text
        for seed in range(12)
    ]
    assert together == alone


def test_request_id_and_started(client: Client) -> None:
    events = client.stream(TEXT, CallSettings(request_id="mine-1"), max_tokens=2)
    started = next(event for event in events if isinstance(event, Started))
    assert started.request_id == "mine-1"
    assert started.prompt_tokens == len(client.tokenize(TEXT))


def test_model_service(client: Client, toy_backend: EmbeddedBackend) -> None:
    limits = client.limits()
    assert (limits.model, limits.vocab_size) == ("toy", toy_backend.model.vocab_size)
    assert limits.max_context_tokens == toy_backend.model.context_limit
    assert client.load().is_ready
    assert client.plan()["arms"] == client.arms()


def test_health_follows_readiness(server: GrpcTestServer) -> None:
    with grpc.insecure_channel(server.target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "whiflash.api.v1.GenerationService"):
            response = stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert response.status == health_pb2.HealthCheckResponse.SERVING
        server.drain(0.0)
        statuses = stub.Watch(health_pb2.HealthCheckRequest(service=""), timeout=10)
        assert any(s.status == health_pb2.HealthCheckResponse.NOT_SERVING for s in statuses)


def test_reflection_lists_the_services(server: GrpcTestServer) -> None:
    with grpc.insecure_channel(server.target) as channel:
        names = set(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert {"whiflash.api.v1.GenerationService", "whiflash.api.v1.ModelService"} <= names


def test_a_port_in_use_is_refused(server: GrpcTestServer, toy_backend: EmbeddedBackend) -> None:
    """Two servers on one port would share its calls."""
    taken = GrpcTestServer(toy_backend, port=server.server.port)
    with pytest.raises(ConfigError, match="grpc-port"), taken:
        pass
