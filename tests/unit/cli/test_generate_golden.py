"""`generate` runs the reference drafters' golden checkpoints, in both layouts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from whiflash.cli.main import run

DATA = Path(__file__).parents[2] / "data"
TARGET = DATA / "dflash_tiny" / "target"
DRAFTERS = (
    "eagle3:eagle3_tiny/draft",
    "eagle3:eagle3_tiny/draft,tree=chain",
    "eagle3:eagle3_tiny/draft_speculators,tree=talon",
    "dflash:dflash_tiny/draft",
    "dflash:dflash_tiny/draft_speculators",
    "ddtree:dflash_tiny/draft",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_golden_drafters_draft_and_the_text_is_the_twins(
    drafter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, _, place = drafter.partition(":")
    arguments = ["--model", str(TARGET), "--drafter", f"{kind}:{DATA / place}"]
    arguments += ["--prompt", "abcabcabc", "--max-tokens", "40", "--policy", f"static:arm={kind}"]
    assert run(["generate", *arguments, "--compare", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arms"][kind]["drafted"] > found["arms"][kind]["accepted"] > 0


def test_a_folder_without_a_tokenizer_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """transformers makes an empty one."""
    folder = shutil.copytree(TARGET, tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    assert run(["generate", "--model", str(folder), "--prompt", "a"]) == 2
    assert "has no tokenizer; copy the model's tokenizer.json into it" in capsys.readouterr().err
