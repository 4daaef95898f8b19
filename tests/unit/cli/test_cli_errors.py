"""Errors of the command line: one line on standard error that says what to do, exit 2."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from whiflash import __version__
from whiflash.cli import generate as generate_module
from whiflash.cli.errors import describe, exit_status
from whiflash.cli.main import run
from whiflash.core.errors import PromptTooLongError


def line_of(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error; nothing may stand on standard output."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("whiflash: ")
    assert captured.err.count("\n") == 1
    return captured.err


BAD_COMMANDS = {
    "no such verb": (["generat"], "generat"),
    "no such flag": (["generate", "--prompt", "x", "--tempratur", "1"], "--tempratur"),
    "missing prompt": (["generate"], "--prompt"),
    "flag without value": (["generate", "--prompt"], "--prompt"),
    "no number": (["generate", "--prompt", "x", "--max-tokens", "many"], "--max-tokens"),
    "temperature": (["generate", "--prompt", "x", "--temperature", "-1"], "temperature must be"),
    "nan": (["generate", "--prompt", "x", "--temperature", "nan"], "temperature must be"),
    "top-p": (["generate", "--prompt", "x", "--top-p", "0"], "top_p must be"),
    "no tokens": (["generate", "--prompt", "x", "--max-tokens", "0"], "max_tokens must be"),
    "seed": (["generate", "--prompt", "x", "--seed", "-5"], "seed must be"),
    "empty prompt": (["generate", "--prompt", ""], "the prompt is empty"),
    "no prompt file": (["generate", "--prompt", "@/no/such/file"], "/no/such/file"),
    "memory": (["plan", "--memory", "lots"], "memory: 'lots' is no size"),
    "dtype": (["plan", "--dtype", "float16"], "dtype"),
    "device": (["plan", "--device", "tpu"], "device"),
    "template": (["plan", "--chat-template", "/no/template"], "/no/template"),
    "two drafters": (["plan", "--drafter", "none", "--drafter", "retrieval"], "excludes"),
    "no config": (["plan", "--config", "/no/config.toml"], "/no/config.toml"),
    "config type": (["plan", "--config", "/no/config.yaml"], ".toml or .json"),
    "suite": (["bench", "cor"], "no benchmark suite 'cor'"),
    "full suite": (["bench", "store", "--full"], "the suite store and --full exclude each other"),
    "default suite": (["bench", "--full"], "the suite core and --full exclude each other"),
    "two suites": (["bench", "core", "--forced"], "the suite core and --forced exclude each other"),
}


@pytest.mark.parametrize(("arguments", "expected"), BAD_COMMANDS.values(), ids=BAD_COMMANDS)
def test_bad_command_is_one_line_and_exit_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert expected in line_of(capsys)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.toml", "max_batch = ", "broken TOML"),
        ("a.json", "{", "broken JSON"),
        ("a.json", "[1]", "one table"),
        ("a.toml", "max_batch = 0", "max_batch"),
        ("a.toml", "max_bacth = 4", "unknown option 'max_bacth'"),
    ],
)
def test_broken_config_file_is_named(
    tmp_path: Path, name: str, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert run(["plan", "--config", str(file)]) == 2
    line = line_of(capsys)
    assert str(file) in line
    assert expected in line


def test_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--model", "no such model"]) == 2
    assert "unknown model 'no such model'" in line_of(capsys)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"whiflash {__version__}\n"


def test_no_arguments_show_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in ("generate", "plan", "bench"))


def test_prompt_from_standard_input_may_not_be_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run(["generate", "--prompt", "-"]) == 2
    assert "the prompt is empty" in line_of(capsys)


def failing_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs `generate` with its first step raising."""

    def fail(value: str) -> str:
        raise error

    monkeypatch.setattr(generate_module, "read_prompt", fail)
    return run(["generate", "--prompt", "x"])


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("cache/models/x", "or set WHIFLASH_CACHE to"),
        ("data/trajectories/x", "or set WHIFLASH_DATA to"),
        ("elsewhere/out.json", "or name another path"),
        (b"elsewhere/out.json", "or name another path"),
        ("cache-of-others/x", "or name another path"),
    ],
)
@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "no permission"),
                         (errno.EROFS, "no permission")],
)  # fmt: skip
def test_a_path_that_cannot_be_written_names_the_variable_that_moves_it(
    path: str | bytes,
    hint: str,
    number: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WHIFLASH_DATA", str(tmp_path / "data"))
    assert failing_with(OSError(number, os.strerror(number), path), monkeypatch) == 2
    line = line_of(capsys)
    assert f"{said} ({os.fsdecode(path)}); " in line
    assert hint in line
    assert line.count("WHIFLASH_") == ("WHIFLASH_" in hint)


def test_no_permission_without_a_path_names_no_variable() -> None:
    assert "WHIFLASH" not in describe(PermissionError(errno.EPERM, "not permitted"))
    assert "WHIFLASH" not in describe(OSError(errno.ENOSPC, "full", 7))


def test_a_message_of_several_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing_with(PromptTooLongError("too\n  long", "prompt"), monkeypatch) == 2
    assert line_of(capsys) == "whiflash: too long\n"


def test_our_own_fault_is_exit_1_and_says_how_to_see_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing_with(ZeroDivisionError("division by zero"), monkeypatch) == 1
    assert "WHIFLASH_TRACEBACK=1" in line_of(capsys)
    monkeypatch.setenv("WHIFLASH_TRACEBACK", "1")
    assert failing_with(ZeroDivisionError("division by zero"), monkeypatch) == 1
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing_with(KeyboardInterrupt(), monkeypatch) == 130
    assert line_of(capsys) == "whiflash: interrupted\n"


def test_memory_errors_can_be_mended() -> None:
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: not enough memory: 9 bytes")):
        assert exit_status(error) == 2
        assert "--memory" in describe(error)


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m whiflash.cli.main --help | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_console_script_exits_2_without_traceback() -> None:
    code = "from whiflash.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "plan", "--memory", "x"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
