"""The tests in `inside`, with one Ray cluster, in a network namespace that has only a loopback:
Serve's gRPC port is bound on all addresses, and Ray's own ports allow code to be run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from whiflash.testing.namespaces import NOT_ALLOWED, can_isolate, run_on_ray

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.timeout(420)]

INSIDE = Path(__file__).parent / "inside"
LIMIT_S = 400


def test_the_cluster_on_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    if not can_isolate():
        pytest.skip(NOT_ALLOWED)
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore", "-m", "not soak"]
    run = run_on_ray(
        [sys.executable, "-m", "pytest", *options, str(INSIDE)], tmp_path, LIMIT_S,
        WHIFLASH_TEST_INSIDE="1", RAY_USAGE_STATS_ENABLED="0",
        RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S="1",
    )  # fmt: skip
    said = [line for line in run.stdout.splitlines() if "pid=" not in line]  # Ray's own lines
    assert run.returncode == 0, "\n".join(said[-150:]) + run.stderr[-2000:]
