"""Ways between gateway and verifier that are slow, silent, cut, or change bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from whiflash import __version__
from whiflash.core.params import GenerationRequest
from whiflash.core.results import Completion
from whiflash.serving.remote.backend import RemoteBackend
from whiflash.testing.backends import ScriptedBackend
from whiflash.testing.relay import FAULTS, FaultyRelay

ANSWER = "an answer of some length, in rounds of three characters"


async def collect(backend: RemoteBackend, number: int) -> tuple[str, Completion]:
    """Text as it was delivered, and the end."""
    text, ends = "", []
    async for event in backend.run(GenerationRequest((number,) * 40), number):
        if isinstance(event, Completion):
            ends.append(event)
        else:
            text += event.text
    [end] = ends
    return text, end


async def all_whole(backend: RemoteBackend, num: int = 12) -> None:
    """Every answer of `num` at once is whole, and something of each was drafted."""
    results = await asyncio.gather(*(collect(backend, number) for number in range(num)))
    assert {text for text, _ in results} == {ANSWER}
    assert all(end.usage.arms["retrieval"].drafted > 0 for _, end in results)


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not what():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_way_costs_no_text(on_cluster: Callable[..., Any], fault: str) -> None:
    """Of one verifier out of two; what was begun there goes on at the other one."""

    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        with ExitStack() as stack:
            ports = [int(server.address.split(":")[1]) for server in cluster.servers.values()]
            relays = [stack.enter_context(FaultyRelay(port)) for port in ports]
            cluster.directory.set(relay.target for relay in relays)
            await until(lambda: {link.address for link in cluster.pool.live()} == {
                relay.target for relay in relays
            })  # fmt: skip
            await all_whole(backend)
            running = asyncio.create_task(all_whole(backend))
            await asyncio.sleep(0.1)
            relays[0].damage_every = 7
            relays[0].spoil(fault, delay_s=0.05)
            await running
            for _ in range(2):
                await all_whole(backend)
            if fault != "slow":
                assert backend.num_moves > 0, "it was spoilt when nothing ran there"
            relays[0].heal()
            await until(lambda: len(cluster.pool.live()) == 2)
            await all_whole(backend)
            await until(lambda: all(s.servicer.num_running == 0 for s in cluster.servers.values()))
            cluster.directory.set(())
            await until(lambda: not list(cluster.pool))

    on_cluster(scenario, *(ScriptedBackend(ANSWER, round_s=0.02) for _ in range(2)))


def test_another_version_is_refused_naming_both(
    on_cluster: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verifier that was met before the gateway changed stays in use."""

    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        monkeypatch.setattr("whiflash.serving.remote.link.__version__", "0.0.0-other")
        port = int(cluster.servers[1].address.split(":")[1])
        await cluster.kill(1)
        await cluster.start(1, port=port)
        await until(lambda: any("0.0.0-other" in s.problem for s in cluster.pool.status()))
        [problem] = [s.problem for s in cluster.pool.status() if s.problem]
        assert __version__ in problem
        await all_whole(backend, 3)
        assert not cluster.verifiers[1].requests

    on_cluster(scenario, *(ScriptedBackend(ANSWER) for _ in range(2)))
