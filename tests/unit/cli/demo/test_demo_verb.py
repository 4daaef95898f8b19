"""`whiflash demo` as it is typed wrongly: told before a model is loaded."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from whiflash.cli.main import run
from whiflash.trajectories.file_log import FileLog
from whiflash.trajectories.scope_keys import VARIABLE

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--redis", "redis://127.0.0.1:1/0"), "redis://127.0.0.1:1/0 failed"),
        (("--redis", "redis+sentinel://127.0.0.1:1"), "redis+sentinel:// is no store"),
        (("--redis", "nonsense"), "is no URL"),
        (("--redis", "redis://127.0.0.1:1/0", "--store", "x"), "exclude each other"),
        (("--store", "memory"), "would be empty again"),
        (("--sessions", "0"), "'--sessions'"),
        (("--turns", "0"), "'--turns'"),
        (("--kind", "poems"), "no kind of session 'poems'; kinds: writing, stock"),
        (("--policy", "nonsense"), "nonsense"),
    ],
)
def test_mistakes_are_told_in_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], rule: str
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    started = time.monotonic()
    assert run(["demo", *arguments]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("whiflash: ")
    assert rule in line
    assert time.monotonic() - started < 30
    assert VARIABLE not in os.environ, "the demo's own secret ends with it"


def test_a_store_in_use_is_told(capsys: Capture, tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    assert run(["demo", "--store", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is being written by process" in line
    log.close()
