"""Every fault of the issue's list on real processes; writes docs/reliability/faults.json."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from whiflash.bench.provenance import collect
from whiflash.testing.fault_cluster import FaultCluster
from whiflash.testing.fault_runs import NUM_TURNS, FaultBench, FaultRun
from whiflash.testing.relay import FAULTS, FaultyRelay

RESULT = Path(__file__).parents[2] / "docs" / "reliability" / "faults.json"
VICTIMS = ("verifier0", "verifier1", "eagle3", "dflash", "router", "redis", "gateway")
LINKS = ("drafter", "router", "verifier")
LINK_TURNS = 16
SPOILT_S = 3.0  # longer than the silence after which a link counts as lost


def faults(cluster: FaultCluster) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
    """What is done, and what mends it, by name."""
    found: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {}
    for victim in VICTIMS:
        found[f"kill -9 of {victim}"] = (
            partial(cluster.kill, victim),
            partial(cluster.revive, victim),
        )
    found["drain of verifier1 under load"] = (
        lambda: _ends_well(cluster.stop("verifier1")),
        lambda: cluster.revive("verifier1"),
    )
    for way in FAULTS:
        for link in LINKS:
            relay = cluster.relays[link][0]
            found[f"link to one {link}: {way}"] = (
                partial(relay.spoil, way, 0.02),
                partial(_heal, relay, way),
            )
    return found


def _ends_well(status: int) -> None:
    assert status == 0


def _heal(relay: FaultyRelay, way: str) -> None:
    time.sleep(0.0 if way == "cut" else SPOILT_S)
    relay.heal()


@pytest.mark.soak
@pytest.mark.usefixtures("needs_redis")
def test_all_faults(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """As many as the minutes allow; the rest is named as left out."""
    ends_s = time.monotonic() + 60 * float(pytestconfig.getoption("--soak-minutes"))
    runs: list[FaultRun] = []
    left_out: list[str] = []
    with FaultCluster(tmp_path, has_relays=True) as cluster:
        bench = FaultBench(cluster)
        opened = cluster.descriptors()
        for name, (fault, heal) in faults(cluster).items():
            if time.monotonic() > ends_s:
                left_out.append(name)
                continue
            num = LINK_TURNS if name.startswith("link") else NUM_TURNS
            runs.append(bench.run(name, fault, heal, num))
            print(runs[-1], flush=True)
        grown = {
            name: count - opened[name]
            for name, count in cluster.descriptors().items()
            if count > opened[name] + 40
        }
    result = {
        "provenance": collect("make soak").record(),
        "runs": [run.record() for run in runs],
        "left_out": left_out,
        "descriptors_grown": grown,
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    assert all(run.is_sound for run in runs), [run.fault for run in runs if not run.is_sound]
    assert not grown
