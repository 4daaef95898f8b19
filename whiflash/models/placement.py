"""Building a folder once: complete or absent, also with two processes or a crash half-way."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from whiflash.core.errors import ModelError

_INVENTORY = "inventory.json"
_GB = 1e9


def is_complete(folder: Path) -> bool:
    """Whether `folder` was placed by `place` and every file still has its size."""
    try:
        sizes: dict[str, int] = json.loads((folder / _INVENTORY).read_text())["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def place(folder: Path, build: Callable[[Path], None], needed_bytes: int, origin: str) -> Path:
    """Returns `folder`, made by `build(empty folder)` if it is not complete yet.

    The files are written beside it and renamed into place, under a lock, so that a reader sees
    all of them or none. `needed_bytes` of free disk are asked for first; `origin` is recorded.
    Raises ModelError if the disk is full or not writable.
    """
    if is_complete(folder):
        return folder
    with disk_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if not is_complete(folder):
                _require_space(folder.parent, needed_bytes)
                _build(folder, build, origin)
    return folder


def _build(folder: Path, build: Callable[[Path], None], origin: str) -> None:
    prefix = f".part-{folder.name}-"
    for stale in folder.parent.glob(f"{prefix}*"):  # the lock is ours: nobody is writing it
        shutil.rmtree(stale, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        build(part)
        sizes = {p.relative_to(part).as_posix(): p.stat().st_size for p in _files(part)}
        (part / _INVENTORY).write_text(json.dumps({"origin": origin, "sizes": sizes}, indent=1))
        part.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _require_space(folder: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise ModelError(
            f"disk full: {folder} has {free / _GB:.2f} GB free and {needed_bytes / _GB:.2f} GB are "
            "needed; free some space or set WHIFLASH_CACHE to a folder on another disk"
        )


@contextmanager
def disk_errors(folder: Path, variable: str = "WHIFLASH_CACHE") -> Iterator[None]:
    """Turns a full or read-only disk below `folder`, which the environment `variable` moves, into a
    ModelError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(
                f"disk full while writing below {folder}; free some space or set {variable} to "
                "a folder on another disk"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST):
            raise ModelError(
                f"cannot write below {folder} ({error.strerror}); set {variable} to a folder that "
                "is yours"
            ) from error
        raise
