"""Runs the tests in parts and prints the time of each: python tests/parts.py [PART ...].

A part runs twice: what may share the machine in two processes, then what is marked `serial`, from
the files alone that say so (tests/conftest.py sees to it that they do).
A part whose folders do not exist is left out; one that exists and runs no test fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent
NO_TESTS = 5  # pytest's exit status when it collected or selected nothing

PARTS: dict[str, tuple[str, ...]] = {
    "drafters and training": ("unit/drafters", "unit/training"),
    "store": ("unit/trajectories", "store"),
    "server and clients": (
        "unit/api",
        "unit/client",
        "unit/rpc",
        "unit/serving",
        "rpc",
        "server",
        "e2e/clients",
    ),
    "cluster": ("unit/services", "serve", "cluster"),
}
SERIAL = "mark.serial"
CORE = "core"  # all the rest, so that a new folder is never forgotten


class Result(NamedTuple):
    """How one part went."""

    name: str
    seconds: float
    failed: bool
    closing_lines: tuple[str, ...]


def folders_of(part: str) -> tuple[list[Path], list[Path]]:
    """The folders of a part that exist, and those in them that are left to other parts."""
    if part != CORE:
        return [ROOT / name for name in PARTS[part] if (ROOT / name).is_dir()], []
    return [ROOT], [ROOT / name for names in PARTS.values() for name in names]


def paths_of(part: str) -> list[str]:
    """pytest arguments that select a part."""
    folders, others = folders_of(part)
    return [*map(str, folders), *(f"--ignore={other}" for other in others)]


def serial_files(part: str) -> list[str]:
    """Its files with serial tests; to load all the others takes longer than a part should."""
    folders, others = folders_of(part)
    files = [file for folder in folders for file in sorted(folder.rglob("test_*.py"))]
    return [
        str(file)
        for file in files
        if SERIAL in file.read_text(encoding="utf-8")
        and not any(file.is_relative_to(other) for other in others)
    ]


def run_pytest(arguments: list[str], threads: int) -> tuple[int, str]:
    """Streams pytest's output; its exit status and last line."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--durations=5", *arguments]
    last = ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT.parent
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last


def run_part(name: str) -> Result:
    """The parallel pass, then the serial one."""
    start = time.perf_counter()
    cores = os.cpu_count() or 1
    shared = ["-n", str(min(cores, 4)), "--dist=worksteal", "-m", "not soak and not serial"]
    passes = [(shared, paths_of(name), 1)]
    if files := serial_files(name):
        passes.append((["-m", "serial and not soak"], files, cores))
    statuses, lines = [], []
    for flags, paths, threads in passes:
        print(f"\n== {name}: pytest {' '.join(flags)}", flush=True)
        status, line = run_pytest([*flags, *paths], threads)
        statuses.append(status)
        if status != NO_TESTS:
            lines.append(line)
    failed = any(status not in (0, NO_TESTS) for status in statuses) or not lines
    return Result(name, time.perf_counter() - start, failed, tuple(lines))


def main(names: list[str]) -> int:
    """Runs the named parts, or all; 1 if one failed."""
    unknown = [name for name in names if name not in (CORE, *PARTS)]
    if unknown:
        print(f"no part {unknown[0]!r}; parts: {', '.join((CORE, *PARTS))}", file=sys.stderr)
        return 2
    parts = names or [name for name in (CORE, *PARTS) if paths_of(name)]
    results = [run_part(name) for name in parts]
    print("\n== times")
    for result in results:
        word = "FAILED" if result.failed else "passed"
        print(f"{result.name}: {word} in {result.seconds:.0f} s")
        for line in result.closing_lines:
            print(f"  {line}")
    return int(any(result.failed for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
