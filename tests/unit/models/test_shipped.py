"""Shipped drafters: found by the target's fingerprint, and part of the wheel."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from whiflash.core.errors import ModelError
from whiflash.drafters.eagle3.options import Eagle3Options
from whiflash.drafters.registry import parse_specs
from whiflash.models.shipped import (
    checkpoints_folder,
    shipped_arms,
    shipped_drafters,
    shipped_folders,
    shipped_router,
    shipped_specs,
)
from whiflash.testing.wheels import ROOT, build_wheel


def _write(root: Path, target: str, arm: str, fingerprint: str) -> Path:
    folder = root / target / arm
    folder.mkdir(parents=True)
    table = {
        "arm": arm,
        "target": {"fingerprint": fingerprint},
        "acceptance": {"all": {"accepted_length": 2.5, "positions": [0.9, 0.6]}},
    }
    (folder / "training.json").write_text(json.dumps(table))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_a_target_finds_its_own(tmp_path: Path) -> None:
    eagle3 = _write(tmp_path, "one", "eagle3", "aa")
    dflash = _write(tmp_path, "one", "dflash", "aa")
    _write(tmp_path, "two", "eagle3", "bb")
    found = shipped_drafters("aa", tmp_path)
    assert [(s.arm, s.folder) for s in found] == [("dflash", dflash), ("eagle3", eagle3)]
    assert found[0].record() == {
        "arm": "dflash", "folder": str(dflash), "accepted_length": 2.5, "positions": (0.9, 0.6)
    }  # fmt: skip
    assert shipped_drafters("cc", tmp_path) == ()


def test_what_is_shipped_is_small_and_readable() -> None:
    for path in checkpoints_folder().glob("*/*/model.safetensors"):
        assert path.stat().st_size <= 24 * 2**20
        table = json.loads((path.parent / "training.json").read_text())
        assert path.parent in {s.folder for s in shipped_drafters(table["target"]["fingerprint"])}


def test_what_is_shipped_is_found_by_name_and_by_kind() -> None:
    for model in (path.name for path in checkpoints_folder().glob("*") if path.is_dir()):
        arms = shipped_arms(model)
        found = shipped_drafters(_fingerprint(model, arms[0]))
        assert {one.arm for one in found} == set(arms)
        folders = shipped_folders(_fingerprint(model, arms[0]))
        assert set(folders) - {"ddtree"} == set(arms)
        assert folders.get("ddtree") == folders.get("dflash")
        specs = {spec.kind: spec for spec in parse_specs(shipped_specs(model))}
        assert set(specs) == set(arms)
        assert Eagle3Options.of_spec(specs["eagle3"]).tree == "chain"
    assert shipped_arms("no-such-model") == ()


def _fingerprint(model: str, arm: str) -> str:
    table = json.loads((checkpoints_folder() / model / arm / "training.json").read_text())
    return str(table["target"]["fingerprint"])


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    folder = _write(tmp_path, "one", "eagle3", "aa")
    (folder / "training.json").write_text("{")
    with pytest.raises(ModelError, match="is damaged"):
        shipped_drafters("aa", tmp_path)


def test_a_target_finds_its_router(tmp_path: Path) -> None:
    for target in ("one", "two"):
        (tmp_path / target).mkdir()
        path = tmp_path / target / "router.safetensors"
        save_file({"a": torch.zeros(1)}, path, {"target": f"fingerprint of {target}"})
    assert shipped_router("fingerprint of two", tmp_path) == path
    assert shipped_router("fingerprint of three", tmp_path) is None
    path.write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="is damaged"):
        shipped_router("fingerprint of two", tmp_path)


def test_the_wheel_holds_them(tmp_path: Path) -> None:
    """Built from this pyproject with a checkpoint in place."""
    source = tmp_path / "source"
    (source / "whiflash").mkdir(parents=True)
    shutil.copy(ROOT / "whiflash" / "__init__.py", source / "whiflash")
    _write(source / "whiflash" / "checkpoints", "one", "eagle3", "aa")
    for name in ("router.safetensors", "router.json", "router.md"):
        (source / "whiflash" / "checkpoints" / "one" / name).write_bytes(b"router")
    names = zipfile.ZipFile(build_wheel(source, tmp_path)).namelist()
    assert "whiflash/checkpoints/one/eagle3/training.json" in names
    assert "whiflash/checkpoints/one/eagle3/model.safetensors" in names
    for name in ("router.safetensors", "router.json", "router.md"):
        assert f"whiflash/checkpoints/one/{name}" in names
