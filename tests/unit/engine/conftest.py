"""The toy target, loaded once, and engines around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from whiflash.core.protocols import Drafter, Policy
from whiflash.engine.core import EngineCore
from whiflash.target.load import LoadedTarget, load_target
from whiflash.testing.engines import small_core
from whiflash.testing.toy import write_toy


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def toy(toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LoadedTarget:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_target(str(toy_folder), dtype="float64")


@pytest.fixture
def make_core(toy: LoadedTarget) -> Iterator[Callable[..., EngineCore]]:
    """`make_core(drafters, policy=..., **limits)`; integrity is checked after the test, and no
    KV memory may be left when the core is closed."""
    cores: list[EngineCore] = []

    def make(
        drafters: Mapping[str, Drafter] | None = None,
        policy: str | Policy = "static",
        **limits: float,
    ) -> EngineCore:
        cores.append(small_core(toy, drafters, policy, **limits))
        return cores[-1]

    yield make
    for core in cores:
        core.check_integrity()
        core.close()
        core.check_integrity()
        assert len(core.admission.prefixes) == 0
