"""A toy target's folder, engines on it, text that it wrote, and the text's features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whiflash.engine.engine import Engine
from whiflash.target.load import LoadedTarget, load_target
from whiflash.testing.toy import write_toy
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import Generations, GenerationSettings, plain_render
from whiflash.training.features.extract import extract


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Its measurements are kept for the session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield write_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def toy_engine(toy_folder: Path) -> Iterator[Callable[[], Engine]]:
    """Makes engines that are closed after the test."""
    engines: list[Engine] = []

    def make() -> Engine:
        engines.append(Engine(model=str(toy_folder), dtype="float64", memory=2**26, max_batch=8))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


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
