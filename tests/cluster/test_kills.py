"""kill -9 of each part of a cluster of real processes, under 50 seeded turns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whiflash.testing.fault_cluster import FaultCluster
from whiflash.testing.fault_runs import FaultBench

pytestmark = [pytest.mark.slow, pytest.mark.serial]


@pytest.fixture(scope="module")
def bench(needs_redis: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultBench]:
    with FaultCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield FaultBench(cluster)


@pytest.mark.parametrize("victim", ["router", "dflash", "redis", "verifier0"])
def test_kill_nine_changes_no_text_and_leaves_nothing(bench: FaultBench, victim: str) -> None:
    run = bench.run(
        f"kill -9 {victim}",
        lambda: bench.cluster.kill(victim),
        lambda: bench.cluster.revive(victim),
    )
    assert run.is_sound, run
