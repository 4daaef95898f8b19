"""Real processes that are killed under load: every text is that of the undisturbed run."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from whiflash.client import AsyncClient, Client, Ended, Piece, UnavailableError
from whiflash.testing.plain_cluster import PlainCluster
from whiflash.testing.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.serial]

NUM_TURNS = 24
OPTIONS: dict[str, Any] = {"max_tokens": 150, "ignore_eos": True, "temperature": 1.0}


def prompt(number: int) -> str:
    return f"turn {number}: tell a story, tell a story"


async def turn(client: AsyncClient, number: int, **more: Any) -> tuple[list[int], str, int]:
    """Ids and text as they came, and how many of the ids were drafted."""
    ids: list[int] = []
    text, drafted, ends = "", 0, 0
    async for event in client.stream(prompt(number), seed=number, **{**OPTIONS, **more}):
        if isinstance(event, Piece) and event.index == 0:
            ids.extend(event.token_ids)
            text += event.text
            drafted += event.accepted
        elif isinstance(event, Ended):
            ends += event.index == 0
            if event.index == 0:
                assert event.usage.completion_tokens == len(ids)
    assert ends == 1
    return ids, text, drafted


async def turns(target: str, kill: Any = None, **more: Any) -> list[tuple[list[int], str]]:
    async with AsyncClient(target, max_retries=8) as client:
        running = [asyncio.create_task(turn(client, n, **more)) for n in range(NUM_TURNS)]
        if kill is not None:
            await kill()
        results = await asyncio.gather(*running)
    assert sum(drafted for *_, drafted in results) > 0, "nothing was drafted"
    return [(ids, text) for ids, text, _ in results]


def state(cluster: PlainCluster) -> dict[str, Any]:
    with Client(cluster.grpc_target) as client:
        found: dict[str, Any] = client.plan()["cluster"]
        return found


def live(cluster: PlainCluster) -> int:
    return sum(verifier["is_live"] for verifier in state(cluster)["verifiers"])


@pytest.fixture(scope="module")
def undisturbed(cluster: PlainCluster) -> list[tuple[list[int], str]]:
    return asyncio.run(turns(cluster.grpc_target))


def test_both_verifiers_work(
    cluster: PlainCluster, undisturbed: list[tuple[list[int], str]]
) -> None:
    assert len(undisturbed) == NUM_TURNS
    assert live(cluster) == 2
    assert asyncio.run(turns(cluster.grpc_target, drafter="retrieval")) == undisturbed


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_verifier_changes_no_text(
    cluster: PlainCluster, undisturbed: list[tuple[list[int], str]], victim: int
) -> None:
    before = state(cluster)["moves"]

    async def kill() -> None:
        await asyncio.sleep(0.4)
        cluster.verifiers[victim].kill()

    try:
        assert asyncio.run(turns(cluster.grpc_target, kill)) == undisturbed
        assert state(cluster)["moves"] > before, "it was killed when nothing ran there"
        assert live(cluster) == 1
    finally:
        cluster.revive(victim)
    wait_for(lambda: live(cluster) == 2, 20, "the new one is not used")


def test_all_verifiers_killed_are_waited_for(
    cluster: PlainCluster, undisturbed: list[tuple[list[int], str]]
) -> None:
    async def kill() -> None:
        await asyncio.sleep(0.4)
        for verifier in cluster.verifiers:
            verifier.kill()
        await asyncio.to_thread(cluster.revive, 0)

    assert asyncio.run(turns(cluster.grpc_target, kill)) == undisturbed
    cluster.revive(1)
    wait_for(lambda: live(cluster) == 2, 20, "the new one is not used")


def test_a_verifier_that_drains_moves_or_ends_its_turns(
    cluster: PlainCluster, undisturbed: list[tuple[list[int], str]]
) -> None:
    async def drain() -> None:
        await asyncio.sleep(0.4)
        assert await asyncio.to_thread(cluster.verifiers[0].stop) == 0

    try:
        assert asyncio.run(turns(cluster.grpc_target, drain)) == undisturbed
    finally:
        cluster.revive(0)
    wait_for(lambda: live(cluster) == 2, 20, "the new one is not used")


def test_a_killed_gateway_costs_its_clients_a_retry(
    cluster: PlainCluster, undisturbed: list[tuple[list[int], str]]
) -> None:
    """The client goes on behind what it has, at another gateway."""

    async def run() -> tuple[list[int], str]:
        ids: list[int] = []
        text = ""
        async with AsyncClient(cluster.grpc_target, max_retries=0) as client:
            with pytest.raises(UnavailableError):  # noqa: PT012
                async for event in client.stream(prompt(3), seed=3, **OPTIONS):
                    if isinstance(event, Piece):
                        ids.extend(event.token_ids)
                        text += event.text
                        if len(ids) > 20 and cluster.gateway is not None:
                            cluster.gateway.kill()
        assert len(ids) < OPTIONS["max_tokens"]
        await asyncio.to_thread(cluster.start_gateway)
        async with AsyncClient(cluster.grpc_target) as client:
            async for event in client.stream(prompt(3), seed=3, forced_ids=ids, **OPTIONS):
                if isinstance(event, Piece):
                    ids.extend(event.token_ids)
                    text += event.text
        return ids, text

    assert asyncio.run(run()) == undisturbed[3]


def test_without_verifiers_callers_are_told_to_try_again(cluster: PlainCluster) -> None:
    for verifier in cluster.verifiers:
        verifier.kill()
    with httpx.Client(base_url=cluster.url, timeout=30, trust_env=False) as http:
        wait_for(lambda: http.get("/ready").status_code == 503, 10, "it claims to be ready")
        body = {"model": "toy", "prompt": "abc", "max_tokens": 4}
        answer = http.post("/v1/completions", json=body)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        for number in range(2):
            cluster.revive(number)
        wait_for(lambda: http.get("/ready").status_code == 200, 20, "it never gets ready again")
        assert http.post("/v1/completions", json=body).status_code == 200
