"""Namespaces of their own for tests on Ray: Serve's gRPC port is bound on all addresses, and Ray's
own ports allow code to be run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_ALLOWED = "user namespaces are not allowed here"


def can_isolate() -> bool:
    """Whether this user may make them."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    command = ["unshare", "-rn", "ip", "link", "set", "lo", "up"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def run_on_ray(
    command: Sequence[str], home: Path, limit_s: float, **more: str
) -> subprocess.CompletedProcess[str]:
    """`command`, isolated, from the project's root, with a HOME of its own and Ray's keys off;
    more: of its environment. Raises subprocess.TimeoutExpired."""
    environment = {
        **os.environ,
        "HOME": str(home),
        "RAY_AUTH_MODE": "disabled",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        **more,
    }
    return subprocess.run(
        _isolated(command), env=environment, cwd=ROOT, capture_output=True, text=True,
        timeout=limit_s, check=False,
    )  # fmt: skip


def _isolated(command: Sequence[str]) -> list[str]:
    """In a network that has only a loopback; what it starts ends with it."""
    inside = f"ip link set lo up && exec {shlex.join(command)}"
    return [
        "unshare", "-rn", "--kill-child", "--pid", "--fork", "--mount-proc", "sh", "-c", inside,
    ]  # fmt: skip
