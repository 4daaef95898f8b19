"""A result carries command, commit, machine and versions (style: provenance is tested)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from whiflash.bench import provenance


def test_record_is_json_and_names_the_machine() -> None:
    record = json.loads(json.dumps(provenance.collect("whiflash bench core").record()))
    assert record["command"] == "whiflash bench core"
    assert record["machine"]["cores"] >= 1
    assert record["machine"]["cpu"]
    assert isinstance(record["machine"]["has_amx"], bool)
    assert record["threads"] >= 1
    assert {"python", "torch", "transformers", "whiflash"} <= record["versions"].keys()
    assert record["date_utc"].endswith("+00:00")


def test_amx_is_read_from_the_flags() -> None:
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        pytest.skip("no /proc/cpuinfo here")
    flags = next(line for line in info.read_text().splitlines() if line.startswith("flags"))
    assert provenance.collect("x").machine.has_amx == ("amx_bf16" in flags.split())


def test_commit_is_that_of_the_checkout() -> None:
    root = Path(provenance.__file__).parents[2]
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    expected = done.stdout.strip() if done.returncode == 0 else None
    assert provenance.collect("x").commit == expected


def test_a_missing_git_gives_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = provenance.collect("x")
    assert found.commit is None
    assert found.is_dirty is None
