"""Closed-loop load on a running server over its public gRPC, as agents' clients see it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from whiflash.bench.server_prompts import ServedKind
from whiflash.client import AsyncClient, CallOptions, Chat, Ended, Piece, Usage

_scopes = itertools.count()


@dataclass(frozen=True, slots=True)
class Request:
    """One call: `number` picks prompt and seed, so that a twin run sends the same."""

    kind: ServedKind
    number: int
    drafter: str | None
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call. first_s and total_s: seconds until the first token and the end;
    usage is the engine's own account of it."""

    token_ids: tuple[int, ...]
    first_s: float
    total_s: float
    usage: Usage

    @property
    def token_s(self) -> float:
        """Seconds per token after the first."""
        return (self.total_s - self.first_s) / max(len(self.token_ids) - 1, 1)

    @property
    def edge_s(self) -> float:
        """What lies between the engine and the client: seconds of the call that were neither
        queue, prefill nor decoding."""
        usage = self.usage
        return self.total_s - 1e-3 * (usage.queue_ms + usage.prefill_ms + usage.decode_ms)


@dataclass(frozen=True, slots=True)
class LoadRun:
    """All answers of one run, in the order of the requests."""

    answers: tuple[Answer, ...]
    seconds: float

    @property
    def num_tokens(self) -> int:
        return sum(len(answer.token_ids) for answer in self.answers)


def run_load(address: str, concurrency: int, requests: Sequence[Request]) -> LoadRun:
    """Keeps `concurrency` calls open until all are answered. Raises CallError."""
    return asyncio.run(_run(address, concurrency, requests))


async def _run(address: str, concurrency: int, requests: Sequence[Request]) -> LoadRun:
    gate = asyncio.Semaphore(concurrency)

    async def one(client: AsyncClient, request: Request) -> Answer:
        async with gate:
            return await _answer(client, request)

    async with AsyncClient(address) as client:
        started = time.perf_counter()
        answers = await asyncio.gather(*(one(client, request) for request in requests))
        return LoadRun(tuple(answers), time.perf_counter() - started)


async def _answer(client: AsyncClient, request: Request) -> Answer:
    """Cold: a scope of its own, nothing stored."""
    prompts = request.kind.conversations
    prompt = prompts[request.number % len(prompts)]
    options: CallOptions = {
        "max_tokens": request.max_tokens,
        "temperature": request.kind.temperature,
        "seed": request.number,
        "subject": f"bench-{next(_scopes)}",
        "no_store": True,
    }
    if request.drafter is not None:
        options["drafter"] = request.drafter
    started, first_s = time.perf_counter(), 0.0
    ids: list[int] = []
    usage = Usage()
    async for event in client.stream(Chat(prompt.messages, prompt.tools), **options):
        if isinstance(event, Piece):
            first_s = first_s or time.perf_counter() - started
            ids += event.token_ids
        elif isinstance(event, Ended):
            usage = event.usage
    return Answer(tuple(ids), first_s, time.perf_counter() - started, usage)
