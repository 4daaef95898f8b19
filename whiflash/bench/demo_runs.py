"""The demo's passes as a benchmark: `whiflash demo --json`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from whiflash.bench.suite import Column, Table
from whiflash.core.errors import WhiFlashError

DEMO_S: Final = 900.0
SAME, DIFFERENT = 0, 1


class DemoFailedError(WhiFlashError):
    """The demo ended without figures; the message is its own."""


def run_demo(model: str, *arguments: str) -> dict[str, Any]:
    """Its JSON. Raises DemoFailedError."""
    program = Path(sys.executable).with_name("whiflash")
    command = [str(program), "demo", "--model", model, "--json", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEMO_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DemoFailedError(f"whiflash demo: {error}") from None
    if done.returncode not in (SAME, DIFFERENT):
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise DemoFailedError(f"whiflash demo ended with {done.returncode}: {said[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def demo_table(store: str, found: Mapping[str, Any]) -> Table:
    """One row per pass. store: where it kept its trajectories."""
    rows = tuple(found[key] for key in found["passes"])
    return Table(
        f"demo_{found['store']['kind']}", f"agent sessions, {store}", NOTE, COLUMNS, rows
    )  # fmt: skip


def pass_of(found: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any] | None:
    """The first of the passes that was run."""
    return next((found[key] for key in keys if found.get(key)), None)


COLUMNS: Final = (
    Column("name", "pass"),
    Column("known_tokens", "tokens in the store"),
    Column("tokens", "tokens"),
    Column("rounds", "rounds"),
    Column("accepted_length", "AL", ".2f"),
    Column("decode_ms", "decode, ms", ".0f"),
    Column("twin_decode_ms", "twin, ms", ".0f"),
    Column("ratio", "ratio", ".2f"),
    Column("same_text", "same text"),
)
NOTE: Final = (
    "Agent sessions on real tools, greedy, decode time alone; the twin decodes plainly, sessions "
    "in alternation. `Other fillings` are the same kinds of work with other contents; they draft "
    "from the first fillings alone, since what they write themselves is not stored. Every warm "
    "pass runs in a process of its own, so nothing of another pass's KV is left. AL counts plain "
    "rounds too."
)
