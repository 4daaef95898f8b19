"""Where a trained file comes from."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from whiflash import __version__


def provenance() -> dict[str, Any]:
    """Command, commit (None outside a checkout), date, versions, machine."""
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "whiflash": __version__,
        "torch": torch.__version__,
        "machine": platform.machine(),
    }


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
