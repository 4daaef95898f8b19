"""Turns on a Ray cluster whose GCS, Ray's own store of who runs where, is killed:

    python -m whiflash.testing.gcs_loss FOLDER

Prints one line of JSON. The GCS keeps its state nowhere and stays away: tokens go from process to
process without it. To be run by `run_on_ray` (testing/namespaces.py)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

from whiflash.client import AsyncClient, Client, Piece
from whiflash.core.ports import free_ports
from whiflash.testing.plain_cluster import write_cluster_config
from whiflash.testing.waiting import wait_for

NUM_TURNS: Final = 24
NUM_VERIFIERS: Final = 2
UP_S: Final = 180.0
OPTIONS: Final[dict[str, Any]] = {"max_tokens": 150, "ignore_eos": True, "temperature": 1.0}
Ids = tuple[int, ...]


def main(folder: Path) -> dict[str, int]:
    """How many turns were those of the undisturbed run, by when they ran."""
    ray_port, http_port, grpc_port = free_ports(3)
    config = write_cluster_config(folder, NUM_VERIFIERS)
    text = config.read_text(encoding="utf-8").replace("http_port = 0", f"http_port = {http_port}")
    config.write_text(text.replace("grpc_port = 0", f"grpc_port = {grpc_port}"), encoding="utf-8")
    target = f"127.0.0.1:{grpc_port}"
    _start_ray(ray_port)
    _up(config, ray_port)
    wait_for(lambda: _live(target) == NUM_VERIFIERS, UP_S, "the cluster did not come up")
    expected = asyncio.run(_turns(target))
    during = asyncio.run(_turns(target, _kill_gcs))
    after = asyncio.run(_turns(target))
    return {
        "turns": NUM_TURNS, "during": _equal(during, expected), "after": _equal(after, expected),
    }  # fmt: skip


def _start_ray(port: int) -> None:
    command = [
        sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head",
        "--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=2",
        "--include-dashboard=false", "--disable-usage-stats",
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=sys.stderr)


def _up(config: Path, ray_port: int) -> None:
    command = [
        sys.executable, "-c", "from whiflash.cli.main import main; main()", "up",
        "--config", str(config), "--address", f"127.0.0.1:{ray_port}", "--detach",
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=sys.stderr)


def _kill_gcs() -> None:
    """kill -9."""
    [gcs] = [p for p in psutil.process_iter() if p.name() == "gcs_server"]
    gcs.kill()
    gcs.wait(10.0)


def _live(target: str) -> int:
    try:
        with Client(target, max_retries=0) as client:
            return sum(v["is_live"] for v in client.plan()["cluster"]["verifiers"])
    except Exception:  # noqa: BLE001 - whatever is not there yet
        return 0


async def _turns(target: str, disturb: Callable[[], None] | None = None) -> list[Ids | str]:
    """Ids of each turn, or what it failed with. `disturb` is called while they run."""
    async with AsyncClient(target, max_retries=8) as client:

        async def turn(number: int) -> Ids | str:
            events = client.stream(f"turn {number}: tell tell", seed=number, **OPTIONS)
            try:
                pieces = [event async for event in events if isinstance(event, Piece)]
            except Exception as error:  # noqa: BLE001 - told to whoever compares
                return repr(error)
            return tuple(token for piece in pieces for token in piece.token_ids)

        running = [asyncio.create_task(turn(number)) for number in range(NUM_TURNS)]
        if disturb is not None:
            await asyncio.sleep(0.3)
            await asyncio.to_thread(disturb)
        return await asyncio.gather(*running)


def _equal(got: list[Ids | str], expected: list[Ids | str]) -> int:
    for mine, other in zip(got, expected, strict=True):
        if mine != other:
            sys.stderr.write(f"{mine} is not {other}\n")
    pairs = zip(got, expected, strict=True)
    return sum(isinstance(mine, tuple) and mine == other for mine, other in pairs)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
