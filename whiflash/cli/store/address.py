"""Where a server that holds a file store can be reached: a note in the store's folder."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from whiflash.trajectories.file_log.lock import HOLDER_NAME

NAME = "server.json"


def note_address(folder: Path, host: str, grpc_port: int) -> None:
    """Only the server that holds the store's lock calls it. A folder that cannot be written is no
    reason to end a server."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    shown = f"[{reachable}]:{grpc_port}" if ":" in reachable else f"{reachable}:{grpc_port}"
    with contextlib.suppress(OSError):
        (folder / NAME).write_text(json.dumps({"grpc": shown, "pid": os.getpid()}), "utf-8")


def forget_address(folder: Path) -> None:
    """Idempotent."""
    with contextlib.suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)


def noted_address(folder: Path) -> str | None:
    """None where no server left one, or another process than that server holds the store now."""
    try:
        note = json.loads((folder / NAME).read_text("utf-8"))
        holder = json.loads((folder / HOLDER_NAME).read_text("utf-8"))
        address, is_holders = note["grpc"], note["pid"] == holder["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return address if is_holders and isinstance(address, str) else None
