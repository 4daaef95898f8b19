"""The golden checkpoint in both layouts, beside its target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from whiflash.drafters.dflash import DFlashDrafter, DFlashOptions, load
from whiflash.models.draft.target_parts import TargetParts
from whiflash.testing.tap_rounds import PlainTarget

GOLDEN = Path(__file__).parents[3] / "data" / "dflash_tiny"
LAYOUTS = {"z-lab": "draft", "speculators": "draft_speculators"}
MakeDrafter = Callable[..., DFlashDrafter]


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN


@pytest.fixture(scope="session")
def target() -> PlainTarget:
    return PlainTarget.load(GOLDEN / "target")


@pytest.fixture(scope="session")
def target_parts(target: PlainTarget) -> TargetParts:
    return TargetParts.of_model(target.model, 512)


@pytest.fixture(params=list(LAYOUTS))
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_drafter(target_parts: TargetParts, integrity: Callable) -> MakeDrafter:
    """make_drafter(layout="z-lab", **options) -> a drafter with nothing open."""

    def make(layout: str = "z-lab", **options: int) -> DFlashDrafter:
        parts = load(GOLDEN / LAYOUTS[layout], target_parts, DFlashOptions(**options))
        made: DFlashDrafter = integrity(DFlashDrafter(parts))
        return made

    return make


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
