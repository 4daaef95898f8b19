"""The golden DFlash checkpoint as a DDTree drafter, beside its target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from whiflash.drafters.ddtree import DDTreeDrafter
from whiflash.drafters.dflash import load
from whiflash.models.draft.target_parts import TargetParts
from whiflash.testing.tap_rounds import PlainTarget

GOLDEN = Path(__file__).parents[3] / "data" / "dflash_tiny"
LAYOUTS = {"z-lab": "draft", "speculators": "draft_speculators"}


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN


@pytest.fixture(scope="session")
def target() -> PlainTarget:
    torch.set_num_threads(1)
    return PlainTarget.load(GOLDEN / "target")


@pytest.fixture
def make_drafter(target: PlainTarget, integrity: Callable) -> Callable[..., DDTreeDrafter]:
    """make_drafter(nodes, layout="z-lab") -> a drafter with nothing open."""
    parts = TargetParts.of_model(target.model, 512)

    def make(nodes: int, layout: str = "z-lab") -> DDTreeDrafter:
        block = load(GOLDEN / LAYOUTS[layout], parts)
        made: DDTreeDrafter = integrity(DDTreeDrafter(block, nodes))
        return made

    return make
