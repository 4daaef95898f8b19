"""Whether a folder holds a trajectory store."""

from __future__ import annotations

from pathlib import Path

from whiflash.trajectories.file_log.lock import HOLDER_NAME, LOCK_NAME
from whiflash.trajectories.file_log.shelf import SUFFIX
from whiflash.trajectories.scope_keys import FILE_NAME


def is_store(folder: Path) -> bool:
    """Looks, and writes nothing."""
    if not folder.is_dir():
        return False
    marks = (FILE_NAME, LOCK_NAME, HOLDER_NAME)
    return any((folder / mark).exists() for mark in marks) or any(folder.glob(f"*/*{SUFFIX}"))
