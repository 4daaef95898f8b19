"""FuseWeights as bytes and back."""

from __future__ import annotations

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from whiflash.core.fuse import FuseWeights

_TAP_NORM = "tap_norms."


def fuse_bytes(weights: FuseWeights) -> bytes:
    """A safetensors file."""
    tensors = {
        "fc": weights.fc,
        "eps": torch.tensor([weights.eps], dtype=torch.float64),
        "input_norm": weights.input_norm,
        "output_norm": weights.output_norm,
    }
    tensors |= {f"{_TAP_NORM}{place}": norm for place, norm in enumerate(weights.tap_norms)}
    return save({n: t.detach().cpu().contiguous() for n, t in tensors.items() if t is not None})


def read_fuse(data: bytes) -> FuseWeights:
    """Raises ValueError on anything that is no such file."""
    try:
        tensors = load(data)
        norms = [name for name in tensors if name.startswith(_TAP_NORM)]
        return FuseWeights(
            fc=tensors["fc"],
            eps=float(tensors["eps"][0]),
            input_norm=tensors.get("input_norm"),
            tap_norms=tuple(tensors[f"{_TAP_NORM}{place}"] for place in range(len(norms))),
            output_norm=tensors.get("output_norm"),
        )
    except (SafetensorError, KeyError, IndexError) as error:
        raise ValueError(f"these bytes are no fuse weights: {error}") from None
