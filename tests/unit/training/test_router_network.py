"""The neural router learns what hidden states tell, and its file is read by the policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from whiflash.core.errors import ConfigError
from whiflash.routing.neural_router import NeuralRouter
from whiflash.routing.router_file import RouterFile
from whiflash.training.clock import TimeLimit
from whiflash.training.router.labels import RouterLabels
from whiflash.training.router.network import NetworkSettings, train_router

ARMS = "eagle3", "dflash"
SETTINGS = NetworkSettings(width=64, batch=256, max_epochs=30)


def _labels(num: int, is_learnable: bool) -> RouterLabels:
    generator = torch.Generator().manual_seed(3)
    hidden = 5 + 20 * torch.randn(num, 12, generator=generator)
    gains = (hidden[:, 0] - 5) / 20 if is_learnable else torch.randn(num, generator=generator)
    lengths = torch.stack([3 + gains, torch.full_like(gains, 3.0)], dim=1)
    number = torch.arange(num)
    return RouterLabels(hidden, lengths, number % 5 == 0, number % 5 == 1)


def _train(labels: RouterLabels, limit: TimeLimit) -> tuple[NeuralRouter, dict[str, object]]:
    router, report = train_router(labels, ARMS, SETTINGS, limit, lambda _error: None)
    return router, report.record()


def test_it_learns_what_is_there(tmp_path: Path) -> None:
    labels = _labels(3000, is_learnable=True)
    router, told = _train(labels, TimeLimit(1))
    assert float(str(told["explained"])) > 0.9
    assert float(str(told["right_sign"])) > 0.9
    RouterFile("f" * 16, router).write(tmp_path / "router.safetensors")
    file = RouterFile.read(tmp_path / "router.safetensors")
    read = file.neural
    assert read is not None
    assert (read.positive, read.negative, file.target) == (*ARMS, "f" * 16)
    # Raw hidden states go in: mean and scale are in the file.
    found = torch.from_numpy(read.predict(labels.hidden.numpy()))
    assert float((found - labels.gains).abs().mean()) < 0.2


def test_it_finds_nothing_where_nothing_is() -> None:
    _, told = _train(_labels(3000, is_learnable=False), TimeLimit(1))
    assert float(str(told["explained"])) < 0.05


def test_same_seed_same_network() -> None:
    labels = _labels(600, is_learnable=True)
    one, other = (_train(labels, TimeLimit(None))[0] for _ in range(2))
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def test_too_few_roots_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few"):
        _train(_labels(100, is_learnable=True), TimeLimit(None))


def test_held_out_roots_do_not_choose_the_weights() -> None:
    """Figures of held-out prompts would flatter a network that was stopped by them."""
    labels = _labels(3000, is_learnable=True)
    moved = labels.lengths.clone()
    moved[labels.is_held_out] = 3.0
    others = replace(labels, lengths=moved)
    one, other = (_train(found, TimeLimit(None))[0] for found in (labels, others))
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)
