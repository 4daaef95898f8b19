"""A toy target's folder and engines on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whiflash.engine.engine import Engine
from whiflash.testing.toy import write_toy


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
