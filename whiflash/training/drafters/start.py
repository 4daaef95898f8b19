"""Weights before the first step."""

from __future__ import annotations

import torch
from torch import nn

_SPREAD = 0.02


def start_weights(module: nn.Module, seed: int) -> None:
    """Norms one; matrices normal with 1 / sqrt(inputs), those that write into the residual stream
    far smaller, so that the first features are nearly the fused taps. Depends on `seed` alone."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(module.named_parameters()):
            if weight.dim() == 1:
                weight.fill_(1.0)
                continue
            spread = float(weight.shape[1] ** -0.5)
            if "o_proj" in name or "down_proj" in name:
                spread *= _SPREAD
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(noise * spread)
