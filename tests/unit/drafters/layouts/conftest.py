"""The golden checkpoints of all layouts, changed at will."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from whiflash.drafters import dflash, eagle3
from whiflash.models.draft.target_parts import TargetParts

DATA = Path(__file__).parents[3] / "data"
LAYOUTS = {
    "SafeAILab": (eagle3.load, DATA / "eagle3_tiny" / "draft"),
    "eagle3 of speculators": (eagle3.load, DATA / "eagle3_tiny" / "draft_speculators"),
    "z-lab": (dflash.load, DATA / "dflash_tiny" / "draft"),
    "dflash of speculators": (dflash.load, DATA / "dflash_tiny" / "draft_speculators"),
}
Load = Callable[[str, dict[str, Any] | None, dict[str, torch.Tensor] | None], Any]


@pytest.fixture(params=list(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def target_parts() -> TargetParts:
    """In a type that is not packed, so that loading is quick."""
    folder = DATA / "dflash_tiny" / "target"
    return TargetParts.of_folder(folder, torch.float64, torch.device("cpu"))


@pytest.fixture
def config_of() -> Callable[[str], dict[str, Any]]:
    """config_of(layout) -> its config.json, to be changed."""

    def read(layout: str) -> dict[str, Any]:
        table: dict[str, Any] = json.loads((LAYOUTS[layout][1] / "config.json").read_text())
        return table

    return read


@pytest.fixture
def load(tmp_path: Path, target_parts: TargetParts) -> Load:
    """load(layout, config, more_tensors) -> what its drafter's `load` makes of such a folder."""

    def loaded(
        layout: str,
        config: dict[str, Any] | None = None,
        more: dict[str, torch.Tensor] | None = None,
    ) -> Any:
        read, golden = LAYOUTS[layout]
        weights, copied = golden / "model.safetensors", tmp_path / "model.safetensors"
        if more or not copied.exists():
            save_file({**load_file(weights), **(more or {})}, copied)
        told = (golden / "config.json").read_text() if config is None else json.dumps(config)
        (tmp_path / "config.json").write_text(told)
        return read(tmp_path, target_parts)

    return loaded
