"""The verbs end to end on the toy target: text, features, steps, checkpoint, engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whiflash.cli.main import run
from whiflash.core.params import SamplingParams
from whiflash.engine.engine import Engine


def _train(arm: str, toy_folder: Path, work_dir: Path, *more: str) -> int:
    return run(
        ["train", arm, "--quick", "--max-minutes", "20", "--model", str(toy_folder), "--dtype",
         "float64", "--no-chat", "--work-dir", str(work_dir), "--products", "float32", *more]
    )  # fmt: skip


def test_quick_runs_end_to_end_and_its_drafters_load(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _train("eagle3", toy_folder, tmp_path, "--depth", "3", "--batch-tokens", "512") == 0
    told = capsys.readouterr().out
    assert "30 steps" in told
    assert "held-out accepted length" in told
    block = ("--mask-id", "0", "--layers", "1", "--block", "4", "--batch-tokens", "512")
    assert _train("dflash", toy_folder, tmp_path, *block) == 0
    folders = {arm: tmp_path / arm / "checkpoint" for arm in ("eagle3", "dflash")}
    for arm, folder in folders.items():
        table = json.loads((folder / "training.json").read_text())
        assert table["arm"] == arm
        assert table["provenance"]["command"]
        assert table["settings"]["seed"] == 0
        assert "Acceptance on held-out prompts" in (folder / "README.md").read_text()
    drafters = tuple(f"{arm}:{folder}" for arm, folder in folders.items())
    with Engine(
        model=str(toy_folder), dtype="float64", memory=2**26, drafters=drafters, policy="survey"
    ) as engine:
        choice = engine.generate("a b", SamplingParams(max_tokens=24)).choices[0]
    assert len(choice.token_ids) > 1


def test_a_sitting_that_is_too_short_says_so(
    toy_folder: Path, work_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "eagle3", "--model", str(toy_folder), "--work-dir", str(work_dir),
                 "--out", str(tmp_path), "--products", "float32", "--depth", "3"]  # fmt: skip
    assert run([*arguments, "--max-minutes", "0"]) == 0
    assert "0 steps, 0 tokens: time is over" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [("features",), ("eagle3",), ("dflash",), ("router", "--drafter", "retrieval")]
)
def test_an_empty_folder_is_told_with_the_stage_that_fills_it(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a b"
    assert run(["train", *arguments, "--work-dir", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{folder} has no generations yet; " in error
    assert f"`whiflash train data --work-dir '{folder}'`" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("eagle3", "--products", "int8"), "--products int8 is unknown"),
        (
            ("router", "--drafter", "retrieval", "--positive", "eagle3"),
            "add --drafter eagle3:FOLDER",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", arguments[0], "--work-dir", str(tmp_path), *arguments[1:]]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
