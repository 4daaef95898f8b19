"""Where the secrets of namespaces come from, and what is refused, without ever being printed."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from whiflash.core.errors import ConfigError
from whiflash.trajectories.scope_keys import (
    FILE_NAME,
    VARIABLE,
    folder_keys,
    new_scope_key,
    parse_scope_keys,
    random_keys,
    shared_keys,
)

SECRET = "s" * 32


def test_the_first_start_makes_a_file_that_its_owner_alone_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    made = folder_keys(tmp_path / "store")
    file = tmp_path / "store" / FILE_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert folder_keys(tmp_path / "store") == made
    assert list(file.parent.iterdir()) == [file]
    assert made[0].key_id == "k1"


def test_processes_that_start_at_once_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: folder_keys(tmp_path / str(number % 4)), range(64)))
    assert len(set(found)) == 4


def test_a_file_that_others_can_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    folder_keys(tmp_path)
    (tmp_path / FILE_NAME).chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        folder_keys(tmp_path)


def test_the_environment_wins_and_redis_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=f"Redis store needs {VARIABLE}.*whiflash store key"):
        shared_keys()
    monkeypatch.setenv(VARIABLE, f"new:{SECRET}, old:{SECRET}2")
    assert [key.key_id for key in shared_keys()] == ["new", "old"]
    assert folder_keys(tmp_path) == shared_keys()
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "holds no key"), (SECRET, "ID:SECRET"), (f"a b:{SECRET}", "ID:SECRET"),
        ("k1:short-but-secret", "at least 32"), (f"k1:{SECRET},k1:{SECRET}", "one key id twice"),
        (f"{'k' * 17}:{SECRET}", "1 to 16"), (f"k.1:{SECRET}", "ID:SECRET"),
    ],
)  # fmt: skip
def test_wrong_keys_are_refused_without_being_told(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as caught:
        parse_scope_keys(text, VARIABLE)
    assert SECRET not in str(caught.value)
    assert "short-but-secret" not in str(caught.value)


def test_new_keys_differ_and_can_be_read() -> None:
    one, other = (parse_scope_keys(new_scope_key("a"), "x")[0] for _ in range(2))
    assert one.key_id == other.key_id == "a"
    assert one.secret != other.secret
    assert random_keys() != random_keys()
    with pytest.raises(ConfigError):
        new_scope_key("no id")
