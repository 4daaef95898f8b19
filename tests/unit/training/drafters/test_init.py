"""Training that begins with a checkpoint: its weights, its vocabulary, and nothing that differs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from whiflash.core.errors import ConfigError
from whiflash.testing.small_training import DFLASH, EAGLE3, METHODS, nobody, short_steps
from whiflash.training.clock import TimeLimit
from whiflash.training.drafters.run import (
    DrafterTraining,
    Eagle3Settings,
    MethodSettings,
)

STEPS = short_steps(4)


def _trained(work_dir: Path, folder: Path, method: MethodSettings) -> Path:
    training = DrafterTraining(work_dir, folder, method, STEPS, "cpu")
    training.run(TimeLimit(None), nobody)
    return training.export()[0]


@pytest.mark.parametrize("method", METHODS, ids=["eagle3", "dflash"])
def test_it_begins_where_the_checkpoint_ended(
    work_dir: Path, tmp_path: Path, method: MethodSettings
) -> None:
    """Before the first step it is accepted as the checkpoint was; the wish for another vocabulary
    or mask gives way to what the checkpoint was made with."""
    first = _trained(work_dir, tmp_path / "a", method)
    other = replace(method, vocab_size=20)
    going_on = DrafterTraining(
        work_dir, tmp_path / "b", other, replace(STEPS, seed=9), "cpu", init=first
    )
    before = json.loads((first / "training.json").read_text())
    measured = going_on.acceptance()["all"]["accepted_length"]
    # The checkpoint holds bf16, what was measured at its end float32.
    assert measured == pytest.approx(before["acceptance"]["all"]["accepted_length"], abs=0.02)
    going_on.run(TimeLimit(None), nobody)
    folder, table = going_on.export()
    init = table["settings"]["init"]
    assert init["steps"] == 4
    assert init["tokens_seen"] == before["tokens_seen"]
    assert f"weights `{init['weights']}`" in (folder / "README.md").read_text()
    assert json.loads((tmp_path / "b" / "settings.json").read_text())["init"] == init
    if isinstance(method, Eagle3Settings):
        assert table["settings"]["vocab_size"] == 48


@pytest.mark.parametrize("method", METHODS, ids=["eagle3", "dflash"])
def test_weights_are_those_of_the_checkpoint(
    work_dir: Path, tmp_path: Path, method: MethodSettings
) -> None:
    first = _trained(work_dir, tmp_path / "a", method)
    going_on = DrafterTraining(work_dir, tmp_path / "b", method, STEPS, "cpu", init=first)
    fresh = DrafterTraining(work_dir, tmp_path / "c", method, STEPS, "cpu")
    kept = DrafterTraining(work_dir, tmp_path / "a", method, STEPS, "cpu")
    for name, weight in kept.objective.module.named_parameters():
        begun = going_on.objective.module.get_parameter(name)
        assert torch.equal(begun, weight.bfloat16().float()), name
    one = next(fresh.objective.module.parameters())
    assert not torch.equal(one, next(going_on.objective.module.parameters()))


def test_another_shape_is_refused(work_dir: Path, tmp_path: Path) -> None:
    first = _trained(work_dir, tmp_path / "a", DFLASH)
    for wanted, flaw in (
        (replace(DFLASH, block=4), "block_size = 5, but what is trained here has 4"),
        (replace(DFLASH, num_layers=2), "num_hidden_layers = 1, but what is trained here has 2"),
    ):
        with pytest.raises(ConfigError, match=flaw):
            DrafterTraining(work_dir, tmp_path / "b", wanted, STEPS, "cpu", init=first)


@pytest.mark.parametrize(
    ("key", "value", "flaw"),
    [
        ("eagle_config", {"eagle_aux_hidden_state_layer_ids": [3]}, "boundaries"),
        ("rope_parameters", {"rope_theta": 5.0, "rope_type": "default"}, "rotary turns"),
        ("rms_norm_eps", 0.5, "rms_norm_eps"),
        ("norm_before_residual", True, "norm_before_residual"),
    ],
)
def test_what_no_shape_shows_is_refused_too(
    work_dir: Path, tmp_path: Path, key: str, value: object, flaw: str
) -> None:
    """A mix-up of taps costs no error, only nearly all acceptance (vLLM #40727)."""
    first = _trained(work_dir, tmp_path / "a", EAGLE3)
    changed = tmp_path / "changed"
    shutil.copytree(first, changed)
    table = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps({**table, key: value}))
    with pytest.raises(ConfigError, match=flaw):
        DrafterTraining(work_dir, tmp_path / "b", EAGLE3, STEPS, "cpu", init=changed)


def test_resuming_from_another_checkpoint_is_refused(work_dir: Path, tmp_path: Path) -> None:
    first = _trained(work_dir, tmp_path / "a", EAGLE3)
    DrafterTraining(work_dir, tmp_path / "b", EAGLE3, STEPS, "cpu", init=first)
    with pytest.raises(ConfigError, match="init"):
        DrafterTraining(work_dir, tmp_path / "b", EAGLE3, STEPS, "cpu")
