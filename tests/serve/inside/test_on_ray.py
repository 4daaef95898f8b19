"""What only a real Ray cluster shows: ingress, placement, replacement, scaling, the commands."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import ray
from ray import serve

from services import app
from services.config import VerifierTable
from whiflash.client import (
    AsyncClient,
    CallSettings,
    Client,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    Piece,
)
from whiflash.core.params import SamplingParams
from whiflash.engine.engine import Engine
from whiflash.testing.conformance import run_conformance
from whiflash.testing.waiting import wait_for

OPTIONS: dict[str, Any] = {"max_tokens": 150, "ignore_eos": True, "temperature": 1.0}
NUM_TURNS = 24


def plan(target: str) -> dict[str, Any]:
    with Client(target) as client:
        found: dict[str, Any] = client.plan()["cluster"]
        return found


def live(target: str) -> int:
    return sum(verifier["is_live"] for verifier in plan(target)["verifiers"])


async def turns(target: str, disturb: Any = None) -> list[tuple[int, ...]]:
    async with AsyncClient(target, max_retries=8) as client:

        async def turn(number: int) -> tuple[int, ...]:
            events = client.stream(f"turn {number}: tell tell", seed=number, **OPTIONS)
            pieces = [event async for event in events if isinstance(event, Piece)]
            return tuple(token for piece in pieces for token in piece.token_ids)

        running = [asyncio.create_task(turn(number)) for number in range(NUM_TURNS)]
        if disturb is not None:
            await disturb()
        return await asyncio.gather(*running)


def test_the_text_is_the_one_of_an_engine_in_one_process(
    target: str, url: str, config: Path
) -> None:
    folder = str(config.parent / "toy")
    with Engine(model=folder, dtype="float64", memory="64MiB") as engine:
        params = SamplingParams(max_tokens=60, seed=9, temperature=1.0)
        expected = engine.generate("tell me a story", params).choices[0]
    with Client(target) as client:
        for arm in client.arms():
            got = client.generate(
                "tell me a story", max_tokens=60, seed=9, temperature=1.0, drafter=arm
            )
            assert tuple(got.choices[0].token_ids) == expected.token_ids
    body = {"model": "toy", "prompt": "tell me a story", "max_tokens": 60, "seed": 9}
    answer = httpx.post(
        f"{url}/v1/completions", json={**body, "temperature": 1}, timeout=30, trust_env=False
    )
    assert answer.json()["choices"][0]["text"] == expected.text


def outside(target: str) -> dict[str, Any]:
    with Client(target) as client:
        found: dict[str, Any] = client.plan()["outside"]
        return found


def text(target: str, arm: str | None) -> tuple[str, int]:
    """And how many tokens the hosted drafter drafted for it."""
    options = {**OPTIONS, "max_tokens": 60, "seed": 3}
    with Client(target) as client:
        [choice] = client.generate("tell tell", drafter=arm, **options).choices
    usage = choice.ended.usage.arms.get("eagle3")
    return choice.text, 0 if usage is None else usage.drafted


def replicas(name: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter()
        if f"ServeReplica:whiflash:{name}" in " ".join(process.cmdline())
    ]


def ask_all(target: str) -> None:
    """Requests that no placement sends to one verifier alone: the plan is one verifier's."""
    with Client(target) as client:
        for number in range(6):
            client.generate(f"tell {number} tell", max_tokens=40)


def await_drafts_and_decisions(target: str) -> None:
    wait_for(lambda: text(target, "eagle3")[1] > 0, 60, "the hosted drafter drafts nothing")

    def decides() -> bool:
        before = outside(target)["router"]["decisions"].get("remote", 0)
        ask_all(target)
        return outside(target)["router"]["decisions"].get("remote", 0) > before

    wait_for(decides, 60, "the hosted router decides nothing")


def test_drafter_and_router_run_in_their_own_actors(target: str) -> None:
    """Their drafts are verified, their decisions taken; killed, they change no text, and Serve
    brings them back at other addresses."""
    plain, _ = text(target, "none")
    await_drafts_and_decisions(target)
    before = outside(target)["drafters"]["eagle3"]["address"]
    for process in (*replicas("drafter_eagle3"), *replicas("router")):
        process.kill()
    for arm in ("eagle3", None):
        assert text(target, arm)[0] == plain
    wait_for(lambda: outside(target)["drafters"]["eagle3"]["address"] != before, 60, "not moved")
    await_drafts_and_decisions(target)
    assert text(target, "eagle3")[0] == plain


def test_other_weights_and_another_policy_reach_verifiers_that_run(
    target: str, config: Path, changed: Path
) -> None:
    """The changed configuration is deployed: Serve updates drafter and router in place, and no
    replica of anything is replaced."""
    plain, _ = text(target, "none")
    before = {process.pid for process in replicas("")}
    hash_ = outside(target)["drafters"]["eagle3"]["weight_hash"]
    serve.run(app.build({"config": str(changed)}), name=app.APP, route_prefix="/")
    try:
        wait_for(lambda: text(target, None)[1] > 0, 60, "the new policy decides nothing")
        await_drafts_and_decisions(target)

        def follows() -> bool:
            ask_all(target)
            found = outside(target)
            is_other = found["drafters"]["eagle3"]["weight_hash"] not in ("", hash_)
            return is_other and found["router"]["policy"] == "static:arm=eagle3"

        wait_for(follows, 60, "the verifier whose plan is shown does not follow")
        assert {text(target, arm)[0] for arm in ("eagle3", None, "none")} == {plain}
        assert {process.pid for process in replicas("")} == before, "a replica was replaced"
    finally:
        serve.run(app.build({"config": str(config)}), name=app.APP, route_prefix="/")


def test_the_front_ends_own_tests_pass_through_serves_ingress(target: str, url: str) -> None:
    run_conformance(url, target)


def test_errors_keep_their_status(target: str, url: str) -> None:
    with Client(target, max_retries=0) as client:
        with pytest.raises(InvalidArgumentError, match="magic"):
            client.generate("x", drafter="magic")
        with pytest.raises(InvalidArgumentError, match="magic"):
            list(client.stream("x", drafter="magic"))
        with pytest.raises(NotFoundError):
            client.generate("x", model="another")
    answer = httpx.post(f"{url}/v1/completions", json={"model": "b"}, timeout=30, trust_env=False)
    assert answer.status_code in (400, 404)
    assert "Traceback" not in answer.text


def test_a_deadline_of_the_client_is_kept(target: str) -> None:
    with Client(target, max_retries=0) as client, pytest.raises(DeadlineError):
        client.generate("x", CallSettings(timeout_s=0.05), **{**OPTIONS, "max_tokens": 490})


def test_status_says_what_runs(target: str) -> None:
    command = "from whiflash.cli.main import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", command, "status", "--json"],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["status"] == "RUNNING"
    assert found["deployments"]["verifier"]["replicas"]["RUNNING"] >= 2
    assert sum(verifier["is_live"] for verifier in found["cluster"]["verifiers"]) >= 2


def test_a_killed_replica_changes_no_text_and_is_replaced(target: str) -> None:
    wait_for(lambda: live(target) >= 2, 60, "two verifiers")
    expected = asyncio.run(turns(target))
    before = plan(target)["moves"]

    async def kill() -> None:
        await asyncio.sleep(0.3)
        replicas("verifier")[0].send_signal(signal.SIGKILL)

    assert asyncio.run(turns(target, kill)) == expected
    assert plan(target)["moves"] > before
    wait_for(lambda: live(target) >= 2, 90, "it was not replaced")
    assert asyncio.run(turns(target)) == expected


def test_load_adds_a_verifier_and_its_end_takes_one_away(target: str) -> None:
    expected = asyncio.run(turns(target))

    def busy_until_three() -> None:
        end_s = time.monotonic() + 100
        while live(target) < 3:
            assert time.monotonic() < end_s, "no verifier was added"
            assert asyncio.run(turns(target)) == expected

    busy_until_three()
    wait_for(lambda: live(target) == 2, 100, "no verifier was taken away")
    assert asyncio.run(turns(target)) == expected


def test_gpu_actors_are_placed_by_share(ray_cluster: None) -> None:
    """Two replicas of half a GPU share one; one that wants a whole one gets another."""

    class Probe:
        def record_replica_metadata(self) -> dict[str, str]:
            return {}

        def gpus(self) -> tuple[int, list[int]]:
            return os.getpid(), ray.get_gpu_ids()

    tables = {
        "halves": VerifierTable(cpus=0.1, gpus=0.5, min_replicas=2, max_replicas=2),
        "whole": VerifierTable(cpus=0.1, gpus=1),
    }
    targets = []
    for name, table in tables.items():
        probe = serve.deployment(Probe, name=name).options(**app._verifier_options(table))
        targets.append(serve.RunTarget(probe.bind(), name=name, route_prefix=None))
    # They go with the cluster; nothing else asks for GPUs.
    handles = serve.run_many(targets)
    halves, whole = (dict([handle.gpus.remote().result() for _ in range(40)]) for handle in handles)
    assert len(halves) == 2
    assert len({gpu for gpus in halves.values() for gpu in gpus}) == 1
    assert not {gpu for gpus in whole.values() for gpu in gpus} & {
        gpu for gpus in halves.values() for gpu in gpus
    }
