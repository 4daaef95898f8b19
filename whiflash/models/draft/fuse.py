"""Fused taps of a drafter that is not here, bit for bit as it would make them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from whiflash.core.fuse import FuseWeights
from whiflash.models.draft.layers import RMSNorm, pack
from whiflash.models.linear import PackedLinear

Fuse = Callable[[torch.Tensor], torch.Tensor]


def make_fuse(weights: FuseWeights, device: torch.device) -> Fuse:
    """[n, boundaries * target width] -> [n, width] on `device`, in the weights' own dtype."""
    module = _TapFuse(weights).to(device)
    pack(module, weights.fc.dtype)
    dtype = weights.fc.dtype

    def fuse(taps: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            fused: torch.Tensor = module(taps.to(device=device, dtype=dtype))
            return fused

    return fuse


def dense_weight(linear: nn.Module) -> torch.Tensor:
    """[out, in] of a linear layer, packed or not; a copy where it is packed."""
    if isinstance(linear, PackedLinear):
        return linear.packed.to_dense()
    weight = linear.weight
    assert isinstance(weight, torch.Tensor)
    return weight.detach()


class _TapFuse(nn.Module):
    def __init__(self, weights: FuseWeights) -> None:
        super().__init__()
        width, taps = weights.fc.shape
        with torch.device("meta"):
            self.fc = nn.Linear(taps, width, bias=False)
        self.fc.weight = nn.Parameter(weights.fc, requires_grad=False)
        self.input_norm = _norm(weights.input_norm, weights.eps)
        self.tap_norms = nn.ModuleList(_norm(norm, weights.eps) for norm in weights.tap_norms)
        self.output_norm = _norm(weights.output_norm, weights.eps)

    def forward(self, taps: torch.Tensor) -> torch.Tensor:
        taps = self.input_norm(taps)
        if len(self.tap_norms):
            parts = taps.split(taps.shape[-1] // len(self.tap_norms), dim=-1)
            normed = [norm(part) for norm, part in zip(self.tap_norms, parts, strict=True)]
            taps = torch.cat(normed, dim=-1)
        fused: torch.Tensor = self.output_norm(self.fc(taps))
        return fused


def _norm(weight: torch.Tensor | None, eps: float) -> nn.Module:
    if weight is None:
        return nn.Identity()
    norm = RMSNorm(0, eps)
    norm.weight = nn.Parameter(weight, requires_grad=False)
    return norm
