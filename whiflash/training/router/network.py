"""The paper's router: two layers, GELU, the mean squared error of dAL, Adam (arXiv 2606.07710)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import mse_loss

from whiflash.core.errors import ConfigError
from whiflash.routing.neural_router import NeuralRouter
from whiflash.routing.router_file import as_stored
from whiflash.training.clock import TimeLimit
from whiflash.training.router.early_stopping import fit_best
from whiflash.training.router.labels import RouterLabels

_MIN_ROOTS = 64


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """width: of the inner layer; batch: roots a step; patience: epochs without a better error on
    the texts kept aside, after which it stops with the best weights."""

    width: int = 512
    rate: float = 1e-3
    batch: int = 1024
    max_epochs: int = 60
    patience: int = 5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RouterReport:
    """On held-out roots. explained: 1 - error / variance of dAL; right_sign: share of the roots
    with dAL != 0 whose sign was found; lengths: mean accepted length of either arm, of the router
    at threshold 0, and of the better arm each time."""

    roots: int
    held_out_roots: int
    explained: float
    right_sign: float
    lengths: dict[str, float]

    def record(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "roots": self.roots,
            "held_out_roots": self.held_out_roots,
            "explained": round(self.explained, 4),
            "right_sign": round(self.right_sign, 4),
            "accepted_length": {name: round(value, 3) for name, value in self.lengths.items()},
        }


def train_router(
    labels: RouterLabels,
    arms: tuple[str, str],
    settings: NetworkSettings,
    limit: TimeLimit,
    on_epoch: Callable[[float], None],
) -> tuple[NeuralRouter, RouterReport]:
    """arms: positive and negative. `on_epoch` hears the error on the texts kept aside.
    Raises ConfigError with too few roots."""
    parts = {"to learn from": labels.is_learned, "kept aside": labels.is_tuning,
             "held out": labels.is_held_out}  # fmt: skip
    counts = {name: int(mask.sum()) for name, mask in parts.items()}
    if min(counts.values()) < _MIN_ROOTS:
        told = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise ConfigError(f"too few roots for a network ({told}); log at least {_MIN_ROOTS} of "
                          "each (--texts)")  # fmt: skip
    mean, scale = _spread(labels.hidden[labels.is_learned])
    network = _fit((labels.hidden - mean) / scale, labels, settings, limit, on_epoch)
    router = NeuralRouter(*arms, _tensors(network, mean, scale))
    return router, report(router, labels)


def _spread(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return hidden.mean(0), hidden.std(0).clamp(min=1e-6)


def _fit(
    inputs: torch.Tensor,
    labels: RouterLabels,
    settings: NetworkSettings,
    limit: TimeLimit,
    on_epoch: Callable[[float], None],
) -> nn.Sequential:
    """The network with the least error on the texts kept aside."""
    generator = torch.Generator().manual_seed(settings.seed)
    network = _network(inputs.shape[1], settings.width, generator)
    optimizer = torch.optim.Adam(network.parameters(), settings.rate)
    rows = torch.nonzero(labels.is_learned)[:, 0]
    tuning, gains = inputs[labels.is_tuning], labels.gains

    def epoch() -> Iterator[torch.Tensor]:
        for batch in rows[torch.randperm(len(rows), generator=generator)].split(settings.batch):
            yield mse_loss(network(inputs[batch])[:, 0], gains[batch])

    def error() -> float:
        return float(mse_loss(network(tuning)[:, 0], gains[labels.is_tuning]))

    fit_best(
        network, optimizer, epoch, error,
        max_epochs=settings.max_epochs, patience=settings.patience, limit=limit, on_epoch=on_epoch,
    )  # fmt: skip
    return network


def _network(num_inputs: int, width: int, generator: torch.Generator) -> nn.Sequential:
    network = nn.Sequential(nn.Linear(num_inputs, width), nn.GELU(), nn.Linear(width, 1))
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 1:
                weight.zero_()
            else:
                noise = torch.randn(weight.shape, generator=generator)
                weight.copy_(noise * weight.shape[1] ** -0.5)
    return network


def _tensors(
    network: nn.Sequential, mean: torch.Tensor, scale: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The file reads the hidden state as it is: mean and scale go into the first layer. What bf16
    makes of a weight is in its bias, as a mean may be many times the scale."""
    first, last = network[0], network[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        weight = as_stored((first.weight / scale).contiguous())
        bias = first.bias - weight @ mean
    return {
        "fc1.weight": weight.detach(),
        "fc1.bias": bias.detach(),
        "fc2.weight": as_stored(last.weight.detach()),
        "fc2.bias": last.bias.detach().clone(),
    }


def report(router: NeuralRouter, labels: RouterLabels) -> RouterReport:
    """What the router, as it will be read, is worth on the held-out roots."""
    rows = labels.is_held_out
    gains, lengths = labels.gains[rows], labels.lengths[rows]
    found = torch.from_numpy(router.predict(labels.hidden[rows].numpy()))
    differs = gains != 0
    error, variance = mse_loss(found, gains), gains.var(unbiased=False)
    chosen = torch.where(found > 0, lengths[:, 0], lengths[:, 1])
    return RouterReport(
        roots=len(rows),
        held_out_roots=int(rows.sum()),
        explained=float(1 - error / variance.clamp(min=1e-9)),
        right_sign=float(((found > 0) == (gains > 0))[differs].float().mean()),
        lengths={
            router.positive: float(lengths[:, 0].mean()),
            router.negative: float(lengths[:, 1].mean()),
            "router": float(chosen.mean()),
            "better": float(lengths.max(1).values.mean()),
        },
    )
