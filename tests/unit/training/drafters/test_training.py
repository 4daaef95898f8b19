"""Training: resumable to the bit, better than nothing, and read by the ordinary loaders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from whiflash.core.errors import ConfigError
from whiflash.core.params import SamplingParams
from whiflash.engine.engine import Engine
from whiflash.testing.small_training import EAGLE3, METHODS, nobody, short_steps
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import read_generations
from whiflash.training.data.prompts import HELD_OUT
from whiflash.training.drafters.run import (
    DrafterTraining,
    MethodSettings,
)
from whiflash.training.drafters.trainer import StepSettings


class _Stop(TimeLimit):
    """Over after some steps."""

    def __init__(self) -> None:
        super().__init__(None)
        self.left = 3

    @property
    def left_s(self) -> float:
        self.left -= 1
        return float(self.left >= 0)


@pytest.mark.parametrize("method", METHODS, ids=["eagle3", "dflash"])
def test_resumed_equals_uninterrupted(
    work_dir: Path, tmp_path: Path, method: MethodSettings
) -> None:
    whole = DrafterTraining(work_dir, tmp_path / "a", method, short_steps(8), "cpu")
    assert whole.run(TimeLimit(None), nobody)
    for _ in range(10):
        part = DrafterTraining(work_dir, tmp_path / "b", method, short_steps(8), "cpu")
        if part.run(_Stop(), nobody):
            break
    assert part.trainer.step == whole.trainer.step == 8
    pairs = zip(
        whole.objective.module.parameters(), part.objective.module.parameters(), strict=True
    )
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("method", METHODS, ids=["eagle3", "dflash"])
def test_a_little_training_beats_none(
    work_dir: Path, tmp_path: Path, method: MethodSettings
) -> None:
    training = DrafterTraining(work_dir, tmp_path, method, short_steps(60), "cpu")
    before = training.acceptance()["all"]["accepted_length"]
    training.run(TimeLimit(1), nobody)
    after = training.acceptance()["all"]["accepted_length"]
    assert after > before + 0.1


@pytest.mark.parametrize("method", METHODS, ids=["eagle3", "dflash"])
def test_the_engine_accepts_as_much_as_was_measured(
    work_dir: Path, toy_folder: Path, tmp_path: Path, method: MethodSettings
) -> None:
    """The checkpoint is read by the strict loader, and its chains along the same greedy texts are
    accepted at the very rates that training measured: alignment, rope and taps are right."""
    training = DrafterTraining(work_dir, tmp_path, method, short_steps(25), "cpu")
    training.run(TimeLimit(None), nobody)
    folder, table = training.export()
    arm = training.objective.name
    shape = f"tree=chain,depth={EAGLE3.depth}" if arm == "eagle3" else "block=5"
    texts = [g for g in read_generations(work_dir) if g.split == HELD_OUT and not g.temperature]
    rounds = tokens = 0
    with Engine(
        model=str(toy_folder), dtype="float64", memory=2**26, drafters=(f"{arm}:{folder},{shape}",),
        policy=f"static:arm={arm}", plain_share=0.0,
    ) as engine:  # fmt: skip
        for text in texts:
            params = SamplingParams(max_tokens=len(text.answer))
            choice = engine.generate(text.prompt, params).choices[0]
            assert choice.token_ids == text.answer
            # The first token comes with the prompt; the last round is cut by max_tokens.
            whole = [len(s.token_ids) for s in choice.segments[1:-1]]
            rounds, tokens = rounds + len(whole), tokens + sum(whole)
    measured = table["acceptance"]["all"]
    assert tokens / rounds == pytest.approx(measured["accepted_length"], abs=0.06)
    assert json.loads((folder / "training.json").read_text())["steps"] == 25
    assert measured["rounds"] > 20


def test_other_settings_do_not_go_on(work_dir: Path, tmp_path: Path) -> None:
    DrafterTraining(work_dir, tmp_path, EAGLE3, short_steps(8), "cpu")
    with pytest.raises(ConfigError, match="num_steps = 8, not 9"):
        DrafterTraining(work_dir, tmp_path, EAGLE3, short_steps(9), "cpu")


def test_the_rate_rises_and_falls() -> None:
    settings = StepSettings(100, rate=1.0, warmup=0.1)
    rates = [settings.rate_at(step) for step in range(100)]
    assert rates.index(max(rates)) == 9
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
