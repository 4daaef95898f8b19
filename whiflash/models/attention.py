"""The attention function that transformers' models call, and what it calls in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from transformers import AttentionInterface

# transformers takes every name that contains "flash" for a FlashAttention kernel and fails
# (facts: measured); without a mask function of the same name it builds no mask.
ATTENTION_NAME = "whi_ragged"
# A layer asks for the same at every call: what it asked first is kept in its module.
_KEPT_PARAMS = "_ragged_params"


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """What one layer asks for besides q, k and v.

    window: keys a row sees, itself included; 0 = all. softcap: 0 = off. sinks: [query heads].
    """

    scaling: float
    window: int = 0
    softcap: float = 0.0
    sinks: torch.Tensor | None = None


class RaggedAttention(Protocol):
    """Attention of one ragged forward. Implementations hold the forward's rows and caches."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        """Write K/V of the rows behind their caches' committed positions and attend.

        query [query heads, T, key width], key [kv heads, T, key width], value [kv heads, T,
        value width] -> [T, query heads, value width].
        """


def _layer_params(
    module: nn.Module, scaling: float | None, options: dict[str, object]
) -> AttentionParams:
    width = float(getattr(module, "head_dim", 0) or 1)
    window = options.get("sliding_window", getattr(module, "sliding_window", None))
    softcap = options.get("softcap")
    sinks = options.get("s_aux")
    return AttentionParams(
        scaling=width**-0.5 if scaling is None else float(scaling),
        window=int(window) if isinstance(window, int) else 0,
        softcap=float(softcap) if isinstance(softcap, (int, float)) else 0.0,
        sinks=sinks if isinstance(sinks, torch.Tensor) else None,
    )


def ragged_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001  (transformers passes one)
    scaling: float | None = None,
    **options: object,
) -> tuple[torch.Tensor, None]:
    """The registered function: [1, heads, T, width] in, [1, T, heads, width] out. The forward's
    `RaggedAttention` comes as the keyword argument `ragged`."""
    ragged: RaggedAttention = options["ragged"]  # type: ignore[assignment]
    kept = vars(module)
    params = kept.get(_KEPT_PARAMS)
    if params is None:
        params = kept[_KEPT_PARAMS] = _layer_params(module, scaling, options)
    return ragged.attend(kept["layer_idx"], query[0], key[0], value[0], params)[None], None


AttentionInterface.register(ATTENTION_NAME, ragged_attention)
