"""The wheel, built from this tree and installed in a fresh environment, holds the trained drafters,
and `whiflash plan` there finds them by the target's fingerprint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from whiflash.models.shipped import checkpoints_folder
from whiflash.testing.wheels import ROOT, build_wheel

MODEL = "smollm2-135m"
ARMS = {"dflash", "eagle3"}


def _run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, check=False, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _wheel(folder: Path) -> Path:
    source = folder / "source"
    skipped = shutil.ignore_patterns("__pycache__")
    for name in ("whiflash", "services"):
        shutil.copytree(ROOT / name, source / name, ignore=skipped)
    return build_wheel(source, folder)


def _installed(wheel: Path, folder: Path) -> Path:
    """The environment's folder of programs. Dependencies are those of the running interpreter: a
    .pth line adds their folder, not the .pth files in it, so this checkout stays out of it."""
    home = folder / "venv"
    venv.create(home, with_pip=False)
    programs = home / "bin"
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "install")
    _run(*pip, "--quiet", "--no-deps", "--no-index", wheel, folder=folder)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def test_a_fresh_environment_plans_with_the_shipped_drafters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    programs = _installed(_wheel(tmp_path), tmp_path)
    arms = ("--drafter", "retrieval", "--drafter", "eagle3", "--drafter", "dflash")
    plan: dict[str, Any] = json.loads(
        _run(programs / "whiflash", "plan", "--json", "--model", MODEL, *arms, folder=tmp_path)
    )
    found = {one["arm"]: Path(one["folder"]) for one in plan["shipped_drafters"]}
    assert set(found) == ARMS
    for arm, folder in found.items():
        assert folder.is_relative_to(tmp_path / "venv")
        kept = checkpoints_folder() / MODEL / arm
        assert {path.name for path in folder.iterdir()} == {path.name for path in kept.iterdir()}


def test_the_text_that_they_learned_from_lies_beside_them() -> None:
    from whiflash.training.data.generations import generations_target, read_generations

    folder = checkpoints_folder() / MODEL
    texts = list(read_generations(folder))
    size = sum(path.stat().st_size for path in (folder / "generations").iterdir())
    assert size <= 10 * 2**20
    for arm in ARMS:
        training = json.loads((folder / arm / "training.json").read_text())
        assert training["target"]["fingerprint"] == generations_target(folder)
        learned = [text for text in texts if text.split == "train"]
        assert len(learned) >= training["texts"]
