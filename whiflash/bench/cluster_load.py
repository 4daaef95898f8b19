"""A cluster of processes under load: what its edge costs, and verifiers that come and go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from whiflash.bench.cluster_process import Part, Parts, write_config
from whiflash.bench.server_load import Answer, Request, run_load
from whiflash.bench.server_process import served
from whiflash.bench.server_prompts import served_kinds
from whiflash.client import AsyncClient, Chat, Client, Piece
from whiflash.core.errors import WhiFlashError
from whiflash.core.ports import free_ports

_LIVE_S = 300.0
_AT_ONCE = 4
_NAMES = ("1 verifier", "1 to 3", "3 verifiers", "3 to 1", "1 verifier again")


@dataclass(slots=True)
class Phase:
    """Turns that ended in it."""

    name: str
    seconds: float = 0.0
    tokens: int = 0
    turns: int = 0


@dataclass(slots=True)
class ScaleRun:
    """failed: turns that ended without an answer; differing: with another text than alone."""

    phases: list[Phase] = field(default_factory=lambda: [Phase(name) for name in _NAMES])
    failed: int = 0
    differing: int = 0
    moves: int = 0


def edge_rows(
    parts: Parts, folder: Path, model: str, count: int, tokens: int
) -> list[dict[str, Any]]:
    """Per token that is delivered: what of a call was neither queue, prefill nor decoding."""
    kind = served_kinds()[0]
    requests = [Request(kind, number, "none", tokens) for number in range(count)]
    with served(model) as address:
        direct = _edge(address.grpc, requests)
    config = write_config(folder, "edge", {"model": model, "store": "memory"})
    verifier = parts.start("verifier", config)
    gateway = parts.start("gateway", config, "--verifiers", verifier.address)
    through = _edge(_target(gateway), requests)
    if direct[1] != through[1]:
        raise WhiFlashError("gateway and server say different texts: report this as a bug")
    for part in (gateway, verifier):
        part.stop()
    return [
        {"way": "one process, public gRPC", "edge_us": direct[0], "start_s": None},
        {"way": "gateway and verifier, public gRPC", "edge_us": through[0],
         "start_s": verifier.start_s + gateway.start_s},
    ]  # fmt: skip


def _edge(target: str, requests: Sequence[Request]) -> tuple[float, list[tuple[int, ...]]]:
    run_load(target, 1, requests[:1])
    answers: Sequence[Answer] = run_load(target, 1, requests).answers
    edge = median(answer.edge_s / len(answer.token_ids) for answer in answers)
    return 1e6 * edge, [answer.token_ids for answer in answers]


def _target(gateway: Part) -> str:
    return f"127.0.0.1:{gateway.said['grpc_port']}"


def scale(parts: Parts, folder: Path, model: str, phase_s: float, tokens: int) -> ScaleRun:
    """Load without a pause while one verifier becomes three and three become one."""
    config = write_config(folder, "scale", {"model": model, "store": "memory", "max_batch": 8})
    ports = free_ports(3)

    def verifier(port: int) -> Part:
        return parts.start("verifier", config, "--port", str(port), threads=1)

    first = verifier(ports[0])
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    gateway = parts.start("gateway", config, "--verifiers", addresses)
    target, run = _target(gateway), ScaleRun()
    expected = asyncio.run(_alone(target, tokens))
    more: list[Part] = []

    def add() -> None:
        with ThreadPoolExecutor() as both:
            more.extend(both.map(verifier, ports[1:]))
        _await_live(target, 3)

    def remove() -> None:
        for part in more:
            part.stop()
        _await_live(target, 1)

    asyncio.run(_load(target, run, phase_s, tokens, expected, add, remove))
    run.moves = int(_cluster(target)["moves"])
    for part in (gateway, first):
        part.stop()
    return run


async def _load(
    target: str, run: ScaleRun, phase_s: float, tokens: int, expected: Sequence[tuple[int, ...]],
    add: Callable[[], None], remove: Callable[[], None],
) -> None:  # fmt: skip
    now, is_over = {"phase": run.phases[0]}, asyncio.Event()

    async def caller(client: AsyncClient, number: int) -> None:
        while not is_over.is_set():
            number = (number + 1) % len(expected)
            try:
                ids = await _turn(client, number, tokens)
            except Exception:  # noqa: BLE001 - whatever it was, the turn has failed
                run.failed += 1
                continue
            run.differing += ids != expected[number]
            now["phase"].tokens += len(ids)
            now["phase"].turns += 1

    async with AsyncClient(target) as client:
        callers = [asyncio.create_task(caller(client, n)) for n in range(_AT_ONCE)]
        for phase, change in zip(run.phases, (None, add, None, remove, None), strict=True):
            now["phase"], began_s = phase, time.perf_counter()
            await (asyncio.sleep(phase_s) if change is None else asyncio.to_thread(change))
            phase.seconds = time.perf_counter() - began_s
        is_over.set()
        await asyncio.gather(*callers)


async def _alone(target: str, tokens: int) -> list[tuple[int, ...]]:
    async with AsyncClient(target) as client:
        return [await _turn(client, number, tokens) for number in range(_AT_ONCE)]


async def _turn(client: AsyncClient, number: int, tokens: int) -> tuple[int, ...]:
    prompts = served_kinds()[0].conversations
    prompt = prompts[number % len(prompts)]
    events = client.stream(
        Chat(prompt.messages, prompt.tools), max_tokens=tokens, temperature=0.8, seed=number
    )
    pieces = [event async for event in events if isinstance(event, Piece)]
    return tuple(token for piece in pieces for token in piece.token_ids)


def _cluster(target: str) -> dict[str, Any]:
    with Client(target) as client:
        found: dict[str, Any] = client.plan()["cluster"]
        return found


def _await_live(target: str, count: int) -> None:
    end_s = time.monotonic() + _LIVE_S
    while sum(v["is_live"] for v in _cluster(target)["verifiers"]) != count:
        if time.monotonic() > end_s:
            raise WhiFlashError(f"the gateway does not see {count} live verifiers")
        time.sleep(0.2)
