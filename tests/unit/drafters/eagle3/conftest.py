"""The reference's records, the target and drafters made from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from whiflash.core.rows import CatchUp, DraftRow, DraftSampling
from whiflash.drafters.eagle3 import Eagle3Drafter, Eagle3Options, load
from whiflash.models.draft.target_parts import TargetParts

DATA = Path(__file__).parents[3] / "data"
CONTEXT_LIMIT = 512
MANY = 10_000


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, torch.Tensor]]:
    """Arrays of one file of records."""
    return lambda name: load_file(DATA / "eagle3_tiny" / f"{name}.safetensors")


@pytest.fixture(scope="session")
def toy_target() -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(
        DATA / "dflash_tiny" / "target", dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


@pytest.fixture(scope="session")
def target_parts(toy_target: PreTrainedModel) -> TargetParts:
    return TargetParts.of_model(toy_target, CONTEXT_LIMIT)


@pytest.fixture
def make_drafter(target_parts: TargetParts, integrity: Any) -> Callable[..., Eagle3Drafter]:
    """`make_drafter(options, layout)`; its integrity is checked after the test."""

    def make(options: Eagle3Options | None = None, layout: str = "draft") -> Eagle3Drafter:
        drafter: Eagle3Drafter = integrity(
            load(DATA / "eagle3_tiny" / layout, target_parts, options)
        )
        return drafter

    return make


class Feeder:
    """Hands a drafter the taps that the target makes of fixed ids, as an engine would."""

    def __init__(self, drafter: Eagle3Drafter, model: PreTrainedModel) -> None:
        self.drafter, self.model = drafter, model

    def taps(self, ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            states = self.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        return torch.cat([states[b][0] for b in self.drafter.boundaries], dim=-1)

    def catch_up(
        self, sequence: int, ids: list[int], end: int | None = None, start: int | None = None
    ) -> CatchUp:
        """The backlog of a sequence of `ids` (root last) up to `end`, default the root."""
        first = self.drafter.absorbed(sequence) if start is None else start
        end = len(ids) - 1 if end is None else end
        fused = self.drafter.fuse(self.taps(ids[:-1])[first:end])
        window = np.array(ids[first : end + 1], np.int32)
        return CatchUp(sequence, first, window, fused, is_window_start=start is not None)

    def row(self, sequence: int, ids: list[int], sampling: DraftSampling | None = None) -> DraftRow:
        return DraftRow(sequence, "test", np.array(ids, np.int32), MANY, MANY, sampling)


@pytest.fixture
def feeder(
    make_drafter: Callable[..., Eagle3Drafter], toy_target: PreTrainedModel
) -> Callable[..., Feeder]:
    return lambda *options: Feeder(make_drafter(*options), toy_target)
