"""`generate` and `plan` on a toy model, through the ordinary engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whiflash.cli.main import run

ANSWER_KEYS = ["text", "token_ids", "finish_reason", "usage", "seed", "arms"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WHIFLASH_CACHE", str(folder))
    return folder


@pytest.fixture
def base(toy_folder: Path) -> list[str]:
    return ["generate", "--model", str(toy_folder), "--prompt", "abcabcabc", "--max-tokens", "24"]


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:
    assert run([*arguments, "--json"]) == status
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1, "one JSON object and nothing else"
    return json.loads(lines[0])


def test_json_answer(base: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = answer([*base, "--seed", "5", "--temperature", "0.8"], capsys)
    assert list(found) == ANSWER_KEYS
    assert found["seed"] == 5
    assert found["finish_reason"] in ("length", "stop")
    assert found["usage"]["completion_tokens"] == len(found["token_ids"]) <= 24
    assert found["usage"]["prompt_tokens"] == len("abcabcabc")
    assert set(found["arms"]) <= {"none", "retrieval"}


def test_same_seed_same_text_and_no_drafter_changes_it(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    seeded = [*base, "--seed", "5", "--temperature", "1.5"]
    first = answer(seeded, capsys)
    assert answer(seeded, capsys)["token_ids"] == first["token_ids"]
    assert answer([*seeded, "--drafter", "none"], capsys)["token_ids"] == first["token_ids"]
    other = answer([*base, "--seed", "6", "--temperature", "1.5"], capsys)
    assert other["token_ids"] != first["token_ids"]


def test_streamed_text_is_the_text(base: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(base, capsys)["text"]
    assert run(base) == 0
    assert capsys.readouterr().out == text + "\n"


def test_compare_says_same_text(base: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*base, "--json", "--compare"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["compare"]["same_text"] is True
    assert found["compare"]["ratio"] > 0
    assert captured.err.splitlines()[-1] == "same text: yes"


def test_prompt_from_a_file(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("abcabcabc")
    from_file = [f"@{file}" if part == "abcabcabc" else part for part in base]
    assert answer(from_file, capsys)["token_ids"] == answer(base, capsys)["token_ids"]


def test_chat_goes_through_the_template(
    base: list[str], chat_template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer([*base, "--chat", "--chat-template", str(chat_template)], capsys)
    assert found["usage"]["prompt_tokens"] == len("<user>abcabcabc<assistant>")


def test_chat_without_a_template_says_what_to_do(
    base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*base, "--chat"]) == 2
    error = capsys.readouterr().err
    assert "--chat-template" in error
    assert error.count("\n") == 1


def test_prompt_over_the_limit(toy_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "--model", str(toy_folder), "--prompt", "a" * 300]) == 2
    captured = capsys.readouterr()
    assert captured.out.strip() == ""
    assert captured.err.count("\n") == 1
    assert "256" in captured.err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(["--drafter", "medusa"], "medusa"), (["--policy", "magic"], "magic")],
)
def test_unknown_arm_or_policy_names_the_known_ones(
    base: list[str], flags: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*base, *flags]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


def test_plan_names_the_cache_folder(
    toy_folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--model", str(toy_folder), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["cache_folder"] == str(cache)
    assert run(["plan", "--model", str(toy_folder)]) == 0
    assert str(cache) in capsys.readouterr().out
