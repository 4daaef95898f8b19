"""The tests in `inside`, with one Ray cluster, in a network namespace that has only a loopback:
Serve's gRPC port is bound on all addresses, and Ray's own ports allow code to be run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.timeout(420)]

INSIDE = Path(__file__).parent / "inside"
ROOT = Path(__file__).parents[2]
LIMIT_S = 400


def can_isolate() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    command = ["unshare", "-rn", "ip", "link", "set", "lo", "up"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_the_cluster_on_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    if not can_isolate():
        pytest.skip("user namespaces are not allowed here")
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "WHIFLASH_TEST_INSIDE": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    options = "-q --tb=short -p no:cacheprovider -W ignore -m 'not soak'"
    tests = f"ip link set lo up && exec {sys.executable} -m pytest {options}"
    run = subprocess.run(
        ["unshare", "-rn", "--kill-child", "--pid", "--fork", "--mount-proc",
         "sh", "-c", f"{tests} {INSIDE}"],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    said = [line for line in run.stdout.splitlines() if "pid=" not in line]  # Ray's own lines
    assert run.returncode == 0, "\n".join(said[-150:]) + run.stderr[-2000:]
