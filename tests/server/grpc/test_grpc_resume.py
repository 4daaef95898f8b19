"""A stream whose connections are cut is one uninterrupted stream for its reader."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from whiflash.client import (
    AsyncClient,
    Chat,
    Client,
    Ended,
    ParseEvent,
    Piece,
    Prompt,
    ResumeError,
    Started,
    StreamEvent,
    UnavailableError,
)
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.testing.backends import ScriptedBackend
from whiflash.testing.grpc_server import GrpcTestServer
from whiflash.testing.relay import CuttingRelay

NUM_CUTS = 50
HANDSHAKE_BYTES = 250
CHAT = Chat([{"role": "user", "content": "say it"}])
CALLS = """<think>
let me see
</think>

reading<tool_call>
{"name": "read", "arguments": {"path": "a.txt", "lines": [1, 2, 3]}}
</tool_call>"""


def read(events: list[StreamEvent]) -> dict[int, dict[str, Any]]:
    """What a reader has of each choice: ids, text, events without their cuts, the end."""
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        if not isinstance(event, Piece | Ended):
            continue
        choice = choices.setdefault(
            event.index, {"ids": [], "text": "", "events": [], "logprobs": [], "end": None}
        )
        for entry in event.events:
            add_event(choice["events"], entry)
        if isinstance(event, Piece):
            choice["ids"].extend(event.token_ids)
            choice["text"] += event.text
            choice["logprobs"].extend(entry.token_id for entry in event.logprobs)
        else:
            assert choice["end"] is None
            choice["end"] = (event.finish_reason, event.message.text, event.usage.completion_tokens)
    return choices


def add_event(events: list[list[Any]], event: ParseEvent) -> None:
    key = [event.kind, event.call if event.HasField("call") else None]
    if events and events[-1][:2] == key:
        events[-1][2] += event.text
    else:
        events.append([*key, event.text])


def cuts(seed: int, count: int, spread_bytes: int) -> Callable[[], int | None]:
    """Bytes until the next cut: `count` random numbers, then no more cuts."""
    draw = random.Random(seed)
    limits = iter([HANDSHAKE_BYTES + draw.randrange(spread_bytes) for _ in range(count)])
    return lambda: next(limits, None)


def through_cuts(
    server: GrpcTestServer, limits: Callable[[], int | None], prompt: Prompt, **options: Any
) -> tuple[list[StreamEvent], int]:
    """Events, and the number of cuts."""
    with (
        CuttingRelay(server.server.port, limits) as relay,
        Client(relay.target, max_retries=NUM_CUTS) as client,
    ):
        return list(client.stream(prompt, **options)), relay.num_cuts


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (NUM_CUTS, {"temperature": 1.0, "seed": 5, "logprobs": 0, "drafter": "none"}),
        (20, {"temperature": 0.8, "seed": 6, "drafter": "retrieval", "stop": ["zq"]}),
        (10, {}),
    ],
    ids=["sampled", "drafted", "greedy"],
)
def test_text_after_cuts_is_the_undisturbed_text(
    server: GrpcTestServer, client: Client, count: int, options: dict[str, Any]
) -> None:
    shared = {"max_tokens": 450, "ignore_eos": True, **options}
    whole = list(client.stream("tell a story", **shared))
    cut, num_cuts = through_cuts(server, cuts(1, count, 250), "tell a story", **shared)
    assert read(cut) == read(whole)
    assert sum(isinstance(event, Started) for event in cut) == 1
    assert num_cuts == count or options.get("drafter") != "none"  # drafts make fewer messages
    assert num_cuts > 0


def test_several_choices_survive_cuts(server: GrpcTestServer, client: Client) -> None:
    options: dict[str, Any] = {"n": 3, "temperature": 1.0, "seed": 3, "max_tokens": 60}
    options["drafter"] = "none"
    whole = list(client.stream("tell", **options))
    limits = iter([400, 500, 800, 1200, 1700])  # each gets beyond the one before
    cut, num_cuts = through_cuts(server, lambda: next(limits, None), "tell", **options)
    assert read(cut) == read(whole)
    assert num_cuts == 5


@pytest.mark.parametrize("round_tokens", [1, 3, 7])
def test_parsed_calls_survive_cuts_anywhere(round_tokens: int) -> None:
    backend = ScriptedBackend(CALLS, round_tokens=round_tokens)
    with GrpcTestServer(backend) as server:
        with Client(server.target) as client:
            whole = list(client.stream(CHAT))
        for seed in range(6):
            cut, num_cuts = through_cuts(server, cuts(seed, 6, 400), CHAT)
            assert read(cut) == read(whole)
            assert num_cuts > 0
    assert read(whole)[0]["end"][1] == CALLS


def test_async_client_resumes(server: GrpcTestServer, client: Client) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 8, "max_tokens": 120}
    whole = list(client.stream("tell", **options))

    async def run(target: str) -> list[StreamEvent]:
        async with AsyncClient(target, max_retries=30) as remote:
            return [event async for event in remote.stream("tell", **options)]

    with CuttingRelay(server.server.port, cuts(4, 15, 200)) as relay:
        assert read(asyncio.run(run(relay.target))) == read(whole)
        assert relay.num_cuts > 0


def test_a_server_that_restarts_is_waited_for(toy_backend: EmbeddedBackend) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 9, "max_tokens": 200}
    with GrpcTestServer(toy_backend) as first:
        port = first.server.port
        with Client(first.target) as client:
            whole = list(client.stream("tell", **options))
        reader = Client(first.target, max_retries=12)
        events = reader.stream("tell", **options)
        got = [next(events) for _ in range(4)]
    second = GrpcTestServer(toy_backend, port=port)
    later = threading.Timer(0.5, second.__enter__)
    later.start()
    try:
        got.extend(events)
    finally:
        later.join()
        reader.close()
        second.__exit__(None, None, None)
    assert read(got) == read(whole)


def test_another_prompt_behind_the_same_address_is_not_continued() -> None:
    """A template that prints the time gives other ids after the break: no exact continuation."""
    backend = ScriptedBackend("a long answer " * 20, round_s=0.005)
    with GrpcTestServer(backend) as server:
        limits = iter([1500])
        with (
            CuttingRelay(server.server.port, lambda: next(limits, None)) as relay,
            Client(relay.target) as client,
        ):
            events = client.stream("prompt")
            got = [next(events), next(events)]
            encode = backend.tokenizer.encode
            server.call(lambda: setattr(backend.tokenizer, "encode", lambda t: [7, *encode(t)]))
            with pytest.raises(ResumeError, match="other tokens"):
                got.extend(events)


def test_retries_end() -> None:
    with Client("127.0.0.1:1", max_retries=1) as client, pytest.raises(UnavailableError):
        list(client.stream("x"))
    with Client("127.0.0.1:1", max_retries=1) as client, pytest.raises(UnavailableError):
        client.generate("x")
