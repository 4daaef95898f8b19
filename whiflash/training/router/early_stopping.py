"""Epochs until the error on what is kept aside gets no better."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from whiflash.training.clock import TimeLimit


def fit_best(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    epoch: Callable[[], Iterable[torch.Tensor]],
    error: Callable[[], float],
    *,
    max_epochs: int,
    patience: int,
    limit: TimeLimit,
    on_epoch: Callable[[float], None],
) -> None:
    """Leaves `net` with the weights of the least `error`.

    epoch: a loss per batch, each computed when it is asked for, after the step of the one before.
    patience: epochs without a better error, after which it stops; `on_epoch` hears each error.
    """
    best, waited = float("inf"), 0
    kept = _copy(net)
    for _ in range(max_epochs):
        for loss in epoch():
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            found = error()
        on_epoch(found)
        waited = 0 if found < best else waited + 1
        if found < best:
            best, kept = found, _copy(net)
        if waited >= patience or limit.is_over:
            break
    net.load_state_dict(kept)


def _copy(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in net.state_dict().items()}
