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
    "ddtree:dflash_tiny/draft_speculators,nodes=16",
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


def test_two_paradigms_in_one_engine_and_the_plan_tells_what_was_resolved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    head, block = DATA / "eagle3_tiny" / "draft", DATA / "dflash_tiny" / "draft"
    engine = ["--model", str(TARGET), "--drafter", f"eagle3:{head}", "--drafter", f"dflash:{block}"]
    asked = ["--prompt", "abcabcabc", "--max-tokens", "60", "--policy", "bandit", "--compare"]
    assert run(["generate", *engine, *asked, "--json"]) == 0
    arms = json.loads(capsys.readouterr().out)["arms"]
    assert min(arms[name]["accepted"] for name in ("eagle3", "dflash")) > 0
    assert run(["plan", *engine, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["drafters"]
    assert (told["eagle3"]["boundaries"], told["dflash"]["boundaries"]) == ([2, 4, 5], [2, 6])
    assert "layout SafeAILab, taps at boundaries [2, 4, 5] of 8" in told["eagle3"]["notes"]
    assert "z-lab layout, boundaries 2+6" in told["dflash"]["notes"]


@pytest.mark.parametrize("place", ["eagle3_tiny/draft", "dflash_tiny/draft"])
def test_a_drafter_with_another_tokenizer_is_refused(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(DATA / place, tmp_path / "draft")
    table = json.loads((TARGET / "tokenizer.json").read_text())
    ids = table["model"]["vocab"]
    first, second = list(ids)[40:42]
    ids[first], ids[second] = ids[second], ids[first]
    (folder / "tokenizer.json").write_text(json.dumps(table))
    drafter = f"{place.partition('_')[0]}:{folder}"
    assert run(["generate", "--model", str(TARGET), "--drafter", drafter, "--prompt", "a"]) == 2
    assert "is not the target's" in capsys.readouterr().err


def test_a_folder_without_a_tokenizer_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """transformers makes an empty one."""
    folder = shutil.copytree(TARGET, tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    assert run(["generate", "--model", str(folder), "--prompt", "a"]) == 2
    assert "has no tokenizer; copy the model's tokenizer.json into it" in capsys.readouterr().err
