"""Text and features of the toy target, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from whiflash.engine.engine import Engine
from whiflash.target.load import LoadedTarget, load_target
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import Generations, GenerationSettings, plain_render
from whiflash.training.features.extract import extract


@pytest.fixture(scope="session")
def toy_target(toy_folder: Path) -> LoadedTarget:
    return load_target(str(toy_folder), dtype="float64")


@pytest.fixture(scope="session")
def work_dir(
    toy_folder: Path, toy_target: LoadedTarget, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Answers of the toy target, and their features at boundary 2."""
    folder = tmp_path_factory.mktemp("work")
    with Engine(model=str(toy_folder), dtype="float64", memory=2**26, drafters=("none",)) as engine:
        fingerprint = engine.core.target.info.fingerprint
        generations = Generations(folder, GenerationSettings(256, 1, 48), fingerprint)
        assert generations.run(engine, plain_render, TimeLimit(None), lambda _p, _a: None)
    assert extract(toy_target, None, folder, TimeLimit(None), lambda _tokens: None)
    return folder
