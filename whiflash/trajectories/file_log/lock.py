"""One writer per store folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path

import filelock

from whiflash.core.errors import ConfigError
from whiflash.trajectories.errors import StoreLockedError

LOCK_NAME = "writer.lock"
HOLDER_NAME = "writer.json"


class WriterLock:
    """Held until `release` or the end of the process, however it ends.

    Raises StoreLockedError, naming the holder, where another one writes; ConfigError where the
    folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._holder = folder / HOLDER_NAME
        self._lock = filelock.FileLock(folder / LOCK_NAME, mode=0o600, thread_local=False)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock.acquire(blocking=False)
            self._holder.write_text(json.dumps(_myself()), encoding="utf-8")
        except filelock.Timeout:
            raise StoreLockedError(
                f"the trajectory store {folder} is being written by {_described(self._holder)}; "
                "stop that process, or name another store"
            ) from None
        except OSError as error:
            self._lock.release()
            raise ConfigError(
                f"the trajectory store {folder} cannot be written ({error.strerror}); "
                "name another store"
            ) from error

    def release(self) -> None:
        """Idempotent."""
        if self._lock.is_locked:
            with contextlib.suppress(OSError):
                self._holder.unlink(missing_ok=True)
            self._lock.release()


def _myself() -> dict[str, object]:
    command = " ".join([Path(sys.argv[0] or "python").name, *sys.argv[1:2]])
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": command,
        "since": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
    }


def _described(holder: Path) -> str:
    try:
        found = json.loads(holder.read_text(encoding="utf-8"))
        return (
            f"process {found['pid']} on {found['host']} ({found['command']}, "
            f"since {found['since']} UTC)"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
