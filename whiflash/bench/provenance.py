"""What a figure needs beside it: command, commit, date, machine, versions."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

# Results and what is rendered from them change with every run; they do not make code dirty.
_RESULTS = (":!docs/benchmarks", ":!docs/benchmarks.md", ":!docs/plots", ":!README.md")


@dataclass(frozen=True, slots=True)
class Machine:
    """The CPU as the operating system names it; `has_amx` is bf16 tiles."""

    cpu: str
    cores: int
    memory_gib: float
    has_amx: bool
    has_avx512_bf16: bool
    gpu: str | None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a result comes from. `is_dirty`: tracked code differed from `commit`."""

    command: str
    commit: str | None
    is_dirty: bool | None
    date_utc: str
    machine: Machine
    threads: int
    versions: dict[str, str]

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def collect(command: str | None = None) -> Provenance:
    """The provenance of a run in this process; `command` is what a person would type again."""
    import torch

    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *_RESULTS)
    return Provenance(
        command=command or shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        commit=commit,
        is_dirty=None if changes is None else bool(changes),
        date_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=_machine(),
        threads=torch.get_num_threads(),
        versions=_versions(),
    )


def _git(*arguments: str) -> str | None:
    """Output of a git command in the folder of this code, None outside a checkout."""
    folder = Path(__file__).parents[2]
    try:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607 - whichever git the developer uses
            cwd=folder, capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _machine() -> Machine:
    import torch

    name, flags = _cpu()
    return Machine(
        cpu=name,
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        has_amx="amx_bf16" in flags,
        has_avx512_bf16="avx512_bf16" in flags,
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    )


def _cpu() -> tuple[str, frozenset[str]]:
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor() or platform.machine(), frozenset()
    fields: dict[str, str] = {}
    for line in info.read_text().split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields.get("model name", platform.machine()), frozenset(fields.get("flags", "").split())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("whiflash", "torch", "transformers", "numba", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
