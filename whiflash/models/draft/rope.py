"""Rotary positions of a drafter: transformers' own frequencies, angles made on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from whiflash.core.errors import ModelError, UnsupportedModelError
from whiflash.models.draft.config import DecoderShape

SUPPORTED = ("default", "linear", "llama3", "yarn")
DEFAULT_THETA = 10_000.0
Turns = tuple[torch.Tensor, torch.Tensor]


class Rope:
    """Cosines and sines of absolute positions, in float32 (float64 where the drafter is).

    No table is kept: published EAGLE-3 configs state 2,048 positions beside targets that have far
    more, and a table of that size made drafts collapse (vLLM #48894).
    """

    def __init__(self, frequencies: torch.Tensor, scaling: float, dtype: torch.dtype) -> None:
        self._frequencies = frequencies
        self._scaling = scaling
        self._dtype = dtype

    def turns(self, positions: torch.Tensor) -> Turns:
        """int64 [n] -> cosines and sines, [n, 1, head width] each, to broadcast over heads."""
        angles = positions.to(self._frequencies.dtype)[:, None] * self._frequencies[None]
        both = torch.cat([angles, angles], dim=1)[:, None]
        return (both.cos() * self._scaling).to(self._dtype), (both.sin() * self._scaling).to(
            self._dtype
        )


def rotate(x: torch.Tensor, turns: Turns) -> torch.Tensor:
    """[n, heads, width], halves turned against each other (NeoX form)."""
    cosines, sines = turns
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cosines + turned * sines


def make_rope(
    config: Mapping[str, Any], shape: DecoderShape, dtype: torch.dtype, device: torch.device
) -> Rope:
    """Reads rope_theta/rope_scaling or transformers 5's rope_parameters. Raises
    UnsupportedModelError on kinds whose angles depend on the batch or have several sections, and
    ModelError on parameters that cannot be used."""
    try:
        params = _params(config)
        _require_supported(params, config)
        table = LlamaConfig(
            hidden_size=shape.hidden_size,
            num_attention_heads=shape.num_heads,
            head_dim=shape.head_width,
            max_position_embeddings=int(config.get("max_position_embeddings") or 2048),
            rope_parameters=params,
        )
        made = LlamaRotaryEmbedding(table)
    except (KeyError, TypeError, ValueError, ArithmeticError, StrictDataclassError) as error:
        told = str(error).split("\n")[0]
        raise ModelError(f"config.json has no usable rope parameters: {told}") from error
    if not made.inv_freq.isfinite().all():
        raise ModelError(
            "config.json has no usable rope parameters: its frequencies are no numbers"
        )
    return Rope(made.inv_freq.to(device), float(made.attention_scaling), dtype)


def _params(config: Mapping[str, Any]) -> dict[str, Any]:
    params = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = params.pop("type", None)
    params.setdefault("rope_type", kind or "default")
    theta = params.get("rope_theta", config.get("rope_theta"))
    params["rope_theta"] = DEFAULT_THETA if theta is None else float(theta)
    return params


def _require_supported(params: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    kind = params["rope_type"]
    if kind not in SUPPORTED:
        raise UnsupportedModelError(
            f"drafter with rope_type {kind!r}: supported are {', '.join(SUPPORTED)}"
        )
    for key in ("mrope_section", "partial_rotary_factor"):
        if params.get(key, config.get(key)) not in (None, 1, 1.0):
            raise UnsupportedModelError(f"drafter with {key}: not supported")
