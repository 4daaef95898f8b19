"""Commands that messages, help and docs tell people to type can be typed as they stand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from whiflash.cli.main import app, run
from whiflash.serving.keys import read_key_file

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = [*sorted((ROOT / "whiflash").rglob("*.py")), *sorted((ROOT / "services").rglob("*.py"))]
IN_TICKS = re.compile(r"`(whiflash [^`]+)`")
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELIDED = re.compile(r"\.\.\.|[|\[\]{}…]")
ROOT_COMMAND = typer.main.get_command(app)


def typed() -> Iterator[tuple[str, str]]:
    """File and command of all that is written out with flags; those with parts left out are
    skipped. A verb alone, as in "`whiflash train data` writes it", is its name."""
    for file in (*PAGES, *SOURCES):
        text = file.read_text("utf-8")
        if file.suffix == ".py":  # a string may go on in the next line
            text = re.sub(r'"\n\s*f?"', "", text)
        commands = IN_TICKS.findall(text)
        for block in FENCED.findall(text):
            lines = block.replace("\\\n", " ").splitlines()
            commands += [line.split("#")[0] for line in lines if line.startswith("whiflash ")]
        for command in commands:
            if " --" in command and not ELIDED.search(command):
                yield file.relative_to(ROOT).as_posix(), " ".join(command.split(" > ")[0].split())


def problem(command: str) -> str:
    """What the parser says of it, "" for nothing. Nothing is run."""
    words = shlex.split(command)[1:]
    verb, context = ROOT_COMMAND, None
    while hasattr(verb, "commands"):
        if not words or words[0] not in verb.commands:
            return "" if words and words[0].startswith("--") else f"no verb {words[:1]}"
        context = context or typer.Context(verb)
        verb = verb.commands[words.pop(0)]
    try:
        verb.make_context("hint", words, parent=context)
    except typer.TyperException as error:
        return error.format_message()
    except typer.Exit:
        return ""
    return ""


def test_the_check_sees_what_is_missing() -> None:
    assert "--id" in problem("whiflash keys new --file keys.toml")
    assert problem("whiflash keys new --id a --tenant b") == ""
    assert "--to" in problem("whiflash store export --to file")


def test_commands_with_flags_can_be_typed() -> None:
    found = sorted(set(typed()))
    assert len(found) > 30
    assert [(*each, problem(each[1])) for each in found if problem(each[1])] == []


@pytest.mark.parametrize("text", ["is public and there are no keys", "must hold [[keys]] tables"])
def test_the_hint_for_keys_makes_a_file_that_is_read(
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("WHIFLASH_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    wrong = tmp_path / "wrong.toml"
    wrong.touch()
    more = ["--host", "0.0.0.0"] if "public" in text else ["--keys", str(wrong)]
    assert run(["serve", "--http-port", "0", "--grpc-port", "0", *more]) == 2
    line = capsys.readouterr().err
    assert text in line
    [command] = IN_TICKS.findall(line)
    assert run(shlex.split(command)[1:]) == 0
    assert len(read_key_file(tmp_path / "keys.toml")) == 1


def test_the_hint_for_a_weak_key_prints_a_good_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHIFLASH_API_KEY", "short")
    assert run(["serve", "--http-port", "0", "--grpc-port", "0"]) == 2
    [command] = IN_TICKS.findall(capsys.readouterr().err)
    assert run(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out.startswith("wf-")
