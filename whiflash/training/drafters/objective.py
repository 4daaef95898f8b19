"""What the trainer asks of a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from whiflash.training.drafters.init import StartPoint
from whiflash.training.features.store import TextFeatures


class Objective(Protocol):
    """One drafter in training."""

    @property
    def name(self) -> str:
        """The arm's name."""

    @property
    def module(self) -> nn.Module:
        """All weights that are trained, in float32."""

    @property
    def depth(self) -> int:
        """Tokens that it is measured to draft."""

    def begin_from(self, start: StartPoint) -> None:
        """Takes the weights of a checkpoint. Raises ConfigError where it is another network."""

    def loss(self, texts: Sequence[TextFeatures], generator: torch.Generator) -> torch.Tensor:
        """Scalar, of one batch. Random choices come from `generator` (on the CPU) alone."""

    def accepted(self, text: TextFeatures) -> torch.Tensor:
        """int64 [n]: how many drafts the target would accept at each root num_prompt, ...,
        L - 2 of its text, at most `depth` and what is left of the text."""

    def checkpoint(self) -> tuple[Mapping[str, Any], Mapping[str, torch.Tensor]]:
        """config.json and tensors (bf16) in a public layout that the strict loader reads."""
