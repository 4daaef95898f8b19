"""Layers of drafters in plain torch: norm, gated MLP, the projections of attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from whiflash.models.draft.config import DecoderShape
from whiflash.models.draft.rope import Turns, rotate
from whiflash.models.linear import PACKED_DTYPES, PackedLinear, plan_rows


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis; the mean square in float32 at least."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * (wide * scale).to(x.dtype)


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        width, inner, bias = shape.hidden_size, shape.intermediate_size, shape.mlp_bias
        self.gate_proj = nn.Linear(width, inner, bias)
        self.up_proj = nn.Linear(width, inner, bias)
        self.down_proj = nn.Linear(inner, width, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Projections(nn.Module):
    """q, k, v, o of one attention, with head norms of q and k where `has_head_norms`.

    in_width: width of what is projected, 2h in the first layer of EAGLE-3.
    """

    def __init__(self, shape: DecoderShape, in_width: int, *, has_head_norms: bool) -> None:
        super().__init__()
        bias, width = shape.attention_bias, shape.head_width
        self.num_heads, self.num_kv_heads, self.width = shape.num_heads, shape.num_kv_heads, width
        self.q_proj = nn.Linear(in_width, self.num_heads * width, bias)
        self.k_proj = nn.Linear(in_width, self.num_kv_heads * width, bias)
        self.v_proj = nn.Linear(in_width, self.num_kv_heads * width, bias)
        self.o_proj = nn.Linear(self.num_heads * width, shape.hidden_size, bias)
        self.q_norm = RMSNorm(width, shape.rms_norm_eps) if has_head_norms else None
        self.k_norm = RMSNorm(width, shape.rms_norm_eps) if has_head_norms else None

    @property
    def scale(self) -> float:
        return float(self.width**-0.5)

    def queries(self, x: torch.Tensor, turns: Turns) -> torch.Tensor:
        """[n, in] -> [n, heads, width], turned to their positions."""
        query = self.q_proj(x).view(-1, self.num_heads, self.width)
        return rotate(query if self.q_norm is None else self.q_norm(query), turns)

    def keys(self, x: torch.Tensor, turns: Turns) -> torch.Tensor:
        """[n, in] -> [n, key heads, width], turned: the form that is kept."""
        key = self.k_proj(x).view(-1, self.num_kv_heads, self.width)
        return rotate(key if self.k_norm is None else self.k_norm(key), turns)

    def values(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in] -> [n, key heads, width]."""
        value: torch.Tensor = self.v_proj(x).view(-1, self.num_kv_heads, self.width)
        return value

    def output(self, attended: torch.Tensor) -> torch.Tensor:
        """[n, heads * width] -> [n, h]."""
        out: torch.Tensor = self.o_proj(attended)
        return out


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    """One sequence's rows on its own keys: [n, heads, width] on [key heads, m, width] -> [n,
    heads * width]. mask: bool [n, m], True where a row sees a key; None where all see all.

    A call per sequence, so that what others do in the batch cannot enter.
    """
    out = functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys[None],
        values[None],
        mask,
        scale=scale,
        enable_gqa=query.shape[1] != keys.shape[0],
    )
    return out[0].transpose(0, 1).reshape(query.shape[0], -1)


def pack(module: nn.Module, dtype: torch.dtype) -> bool:
    """Swaps the linear layers below `module` for packed ones where this machine gives each row
    the same bits whatever is beside it. Returns whether it does; if not, they stay as they were.
    """
    linears = list(_linears(module))
    if not linears or not _can_pack(linears[0][2], dtype):
        return False
    packed = [PackedLinear(linear) for _, _, linear in linears]
    if plan_rows(packed) is None:
        return False
    for (parent, name, _), new in zip(linears, packed, strict=True):
        setattr(parent, name, new)
    return True


def linear_of(weight: torch.Tensor) -> nn.Module:
    """x -> x @ weight.T, for a weight [out, in]: a linear layer, packed where that pays."""
    holder = nn.Sequential(nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta"))
    holder.load_state_dict({"0.weight": weight}, assign=True)
    pack(holder.requires_grad_(False), weight.dtype)
    return holder[0]


def _linears(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                yield parent, name, child


def _can_pack(linear: nn.Linear, dtype: torch.dtype) -> bool:
    if linear.weight.device.type != "cpu" or dtype not in PACKED_DTYPES:
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
