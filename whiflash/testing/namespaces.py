"""Namespaces of their own for tests on Ray: Serve's gRPC port is bound on all addresses, and Ray's
own ports allow code to be run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence


def can_isolate() -> bool:
    """Whether this user may make them."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    command = ["unshare", "-rn", "ip", "link", "set", "lo", "up"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def isolated(command: Sequence[str]) -> list[str]:
    """`command` in a network that has only a loopback; what it starts ends with it."""
    inside = f"ip link set lo up && exec {shlex.join(command)}"
    return [
        "unshare", "-rn", "--kill-child", "--pid", "--fork", "--mount-proc", "sh", "-c", inside,
    ]  # fmt: skip
