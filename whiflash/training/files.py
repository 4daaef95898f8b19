"""Files of a work folder: complete or absent, and made with one set of settings."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from whiflash.core.errors import ConfigError

_SETTINGS = "settings.json"


def write_whole(path: Path, data: bytes) -> None:
    """Writes the file so that a crash leaves the old one or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def only_user(folder: Path) -> Iterator[None]:
    """One process works in the folder at a time. Raises ConfigError while another one does."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise ConfigError(f"another command is at work in {folder}; wait for it, or give another "
                          "--work-dir") from None  # fmt: skip


def keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Notes what the folder is made with, or holds a later run to it: what is resumed must be one
    thing. Raises ConfigError, naming what differs."""
    path = folder / _SETTINGS
    asked = json.loads(json.dumps(settings))
    if not path.is_file():
        write_whole(path, json.dumps(asked, indent=1).encode() + b"\n")
        return
    found = read_settings(folder)
    differing = sorted(k for k in {*found, *asked} if found.get(k) != asked.get(k))
    if differing:
        key = differing[0]
        raise ConfigError(
            f"{folder} was begun with {key} = {found.get(key)!r}, not {asked.get(key)!r}; give the "
            "same again to go on with it, or another folder"
        )


def read_settings(folder: Path, stage: str = "") -> dict[str, Any]:
    """What the folder was made with. Raises ConfigError if that is not there or broken.

    stage: of `whiflash train`, which makes this folder of a work folder: told where it is missing.
    """
    path = folder / _SETTINGS
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        hint = f"whiflash train {stage} --work-dir {shlex.quote(str(folder.parent))}"
        told = f"; `{hint}` makes it, with the --model that is trained for" if stage else ""
        raise ConfigError(f"{folder.parent} has no {folder.name} yet{told}") from None
    except ValueError:
        raise ConfigError(f"{path} is damaged; take another folder") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path} must hold one table")
    return table
