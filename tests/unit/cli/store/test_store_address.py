"""The note by which verbs find the server that holds a file store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from whiflash.cli.main import run
from whiflash.cli.store.address import NAME, forget_address, note_address, noted_address
from whiflash.trajectories.file_log import FileLog


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A store that this process holds."""
    log = FileLog(tmp_path / "store")
    yield tmp_path / "store"
    log.close()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1:9000"),
        ("0.0.0.0", "127.0.0.1:9000"),
        ("::", "[::1]:9000"),
        ("::1", "[::1]:9000"),
        ("box", "box:9000"),
    ],
)
def test_the_address_of_the_process_that_holds_the_store(
    folder: Path, host: str, address: str
) -> None:
    note_address(folder, host, 9000)
    assert noted_address(folder) == address
    forget_address(folder)
    forget_address(folder)
    assert noted_address(folder) is None


def test_a_note_that_a_killed_server_left_is_not_believed(folder: Path) -> None:
    """Somebody else holds the store now, and may listen to nothing, or to something else."""
    note_address(folder, "127.0.0.1", 9000)
    note = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**note, "pid": note["pid"] + 1}))
    assert noted_address(folder) is None


@pytest.mark.parametrize("text", ["", "[]", '{"grpc": 3}', '{"grpc": "a:1"}', "\xff"])
def test_a_damaged_note_is_none(folder: Path, text: str) -> None:
    (folder / NAME).write_text(text, "latin-1")
    assert noted_address(folder) is None


def test_a_note_that_cannot_be_written_ends_no_server(tmp_path: Path) -> None:
    note_address(tmp_path / "nowhere", "127.0.0.1", 9000)
    assert noted_address(tmp_path / "nowhere") is None


def test_a_held_store_without_a_server_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["store", "stats", "--store", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is being written by process" in line
    assert "--server HOST:PORT" in line
