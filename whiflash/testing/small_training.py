"""Trainings of drafters that take seconds."""

from __future__ import annotations

from typing import Any

from whiflash.training.drafters.run import DFlashSettings, Eagle3Settings, MethodSettings
from whiflash.training.drafters.trainer import StepReport, StepSettings

EAGLE3 = Eagle3Settings(vocab_size=48, unroll=3, depth=4)
DFLASH = DFlashSettings(vocab_size=48, num_layers=1, block=5, mask_id=0)
METHODS: list[MethodSettings] = [EAGLE3, DFLASH]


def short_steps(count: int, **others: Any) -> StepSettings:
    """`count` steps; `others` are fields of StepSettings."""
    return StepSettings(count, batch_tokens=512, rate=3e-3, dtype="float32", **others)


def nobody(_report: StepReport) -> None:
    """Who is told of a step and does not care."""
