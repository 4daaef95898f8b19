"""Fits the heads of `goodput`: survival of every arm's nodes from what is known at a root."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy, silu

from whiflash.core.errors import ConfigError
from whiflash.routing.heads import NUM_RANKS, Floats, HeadArm, SurvivalHeads, num_signals
from whiflash.routing.router_file import as_stored
from whiflash.training.clock import TimeLimit
from whiflash.training.router.early_stopping import fit_best
from whiflash.training.router.isotonic import rising_curve
from whiflash.training.router.samples import HeadSamples

MIN_ROOTS = 64


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """width: of the inner layer; batch: roots a step; patience: epochs without a better error on
    the texts kept aside, after which it stops with the best weights; blind: share of the roots that
    are read without their hidden state, so that heads can do without; decay: of the weights."""

    width: int = 64
    rate: float = 2e-3
    batch: int = 256
    max_epochs: int = 60
    patience: int = 6
    blind: float = 0.15
    decay: float = 0.05
    seed: int = 0


class HeadNet(nn.Module):
    """SurvivalHeads with inputs of mean 0 and scale 1, differentiable."""

    def __init__(self, hidden_size: int, arms: Sequence[HeadArm], width: int) -> None:
        super().__init__()
        self.num_arms = len(arms)
        self.hidden = nn.Linear(hidden_size, width, bias=False)
        self.signals = nn.Linear(num_signals(len(arms)), width)
        self.out = nn.Linear(width, len(arms) * NUM_RANKS)
        self.reads = torch.tensor([[float(arm.has_claims)] for arm in arms])
        self.claim = nn.Parameter(self.reads.expand(-1, 2).clone())
        with torch.no_grad():
            self.out.weight.mul_(0.1)

    @torch.no_grad()
    def begin_at(self, samples: HeadSamples) -> None:
        """Arms without claims begin with the mean of each step: few roots then do no harm."""
        known = samples.is_known.float()
        rates = (samples.hits * known).sum(0) / known.sum(0).clamp(min=1.0)
        before = torch.cat([torch.ones(self.num_arms, 1), rates[:, :-1]], dim=1)
        steps = (rates / before.clamp(min=1e-3)).clamp(0.01, 0.99)
        self.out.bias.copy_((torch.logit(steps) * (1.0 - self.reads)).flatten())

    def forward(
        self, hidden: torch.Tensor, signals: torch.Tensor, steps: torch.Tensor
    ) -> torch.Tensor:
        """[n, A, R]: survival by rank."""
        inner = silu(self.hidden(hidden) + self.signals(signals))
        z = self.out(inner).view(-1, self.num_arms, NUM_RANKS)
        first_and_later = (torch.arange(NUM_RANKS) > 0).long()
        z = z + (self.claim * self.reads)[:, first_and_later] * steps
        odds: torch.Tensor = torch.sigmoid(z).cumprod(-1)
        return odds


def train_heads(
    samples: HeadSamples,
    arms: Sequence[HeadArm],
    settings: HeadSettings,
    limit: TimeLimit,
    on_epoch: Callable[[float], None],
) -> SurvivalHeads:
    """`on_epoch` hears the error on the texts kept aside, nats per known node. Raises ConfigError
    with too few roots."""
    train = samples.of(~samples.is_held_out & ~samples.is_tuning)
    tuning = samples.of(samples.is_tuning)
    if min(len(train), len(tuning)) < MIN_ROOTS:
        raise ConfigError(f"{len(train)} roots and {len(tuning)} kept aside are too few for heads; "
                          f"log at least {MIN_ROOTS} of each (--texts)")  # fmt: skip
    spread = _Spread.of(train)
    net = _fit(spread.scaled(train), spread.scaled(tuning), arms, settings, limit, on_epoch)
    return _heads(net, spread, arms, train)


@dataclass(frozen=True, slots=True)
class _Spread:
    """Mean and scale of the inputs."""

    hidden_mean: torch.Tensor
    hidden_scale: torch.Tensor
    signal_mean: torch.Tensor
    signal_scale: torch.Tensor

    @classmethod
    def of(cls, samples: HeadSamples) -> _Spread:
        return cls(*_moments(samples.hidden), *_moments(samples.signals))

    def scaled(self, samples: HeadSamples) -> HeadSamples:
        hidden = (samples.hidden - self.hidden_mean) / self.hidden_scale
        signals = (samples.signals - self.signal_mean) / self.signal_scale
        return HeadSamples(hidden, signals, samples.steps, samples.claims, samples.hits,
                           samples.is_known, samples.is_held_out, samples.is_tuning)  # fmt: skip


def _moments(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return values.mean(0), values.std(0).clamp(min=1e-3)


def _fit(
    train: HeadSamples,
    tuning: HeadSamples,
    arms: Sequence[HeadArm],
    settings: HeadSettings,
    limit: TimeLimit,
    on_epoch: Callable[[float], None],
) -> HeadNet:
    """The net with the least error on the texts kept aside."""
    generator = torch.Generator().manual_seed(settings.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        net = HeadNet(train.hidden.shape[1], arms, settings.width)
    net.begin_at(train)
    optimizer = torch.optim.AdamW(net.parameters(), settings.rate, weight_decay=settings.decay)

    def epoch() -> Iterator[torch.Tensor]:
        for rows in torch.randperm(len(train), generator=generator).split(settings.batch):
            batch = train.of(rows)
            sees = torch.rand(len(rows), 1, generator=generator) >= settings.blind
            yield _error(net, batch, batch.hidden * sees)

    def error() -> float:
        return float(_error(net, tuning, tuning.hidden))

    fit_best(
        net, optimizer, epoch, error,
        max_epochs=settings.max_epochs, patience=settings.patience, limit=limit, on_epoch=on_epoch,
    )  # fmt: skip
    return net


def _error(net: HeadNet, batch: HeadSamples, hidden: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the known nodes."""
    odds: torch.Tensor = net(hidden, batch.signals, batch.steps)
    known = batch.is_known
    if not bool(known.any()):
        return odds.sum() * 0.0
    return binary_cross_entropy(odds[known].clamp(1e-6, 1 - 1e-6), batch.hits[known])


def _heads(
    net: HeadNet, spread: _Spread, arms: Sequence[HeadArm], train: HeadSamples
) -> SurvivalHeads:
    """Raw inputs go in: scales and the signals' mean move into the first layer."""
    with torch.no_grad():
        signal_weight = as_stored(net.signals.weight / spread.signal_scale)
        arrays = {
            "hidden_weight": as_stored(net.hidden.weight / spread.hidden_scale),
            "hidden_mean": spread.hidden_mean,
            "signal_weight": signal_weight,
            "bias": net.signals.bias - signal_weight @ spread.signal_mean,
            "out_weight": as_stored(net.out.weight),
            "out_bias": net.out.bias,
            "claim_weight": as_stored(net.claim * net.reads),
        }
    curves = [_curve(train, place) for place in range(len(arms))]
    return SurvivalHeads(
        tuple(arms),
        **{
            name: array.detach().contiguous().numpy().astype(np.float32)
            for name, array in arrays.items()
        },
        claimed=np.stack([claimed for claimed, _ in curves]).astype(np.float32),
        true=np.stack([true for _, true in curves]).astype(np.float32),
    )


def _curve(train: HeadSamples, place: int) -> tuple[Floats, Floats]:
    claims = train.claims[:, place]
    known = train.is_known[:, place] & (claims > 0)
    return rising_curve(
        claims[known].double().numpy(), train.hits[:, place][known].double().numpy()
    )
