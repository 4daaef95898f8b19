"""Small layers against transformers' own, rope kinds, and rows that keep their bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from whiflash.models.draft.config import DecoderShape
from whiflash.models.draft.layers import GatedMLP, RMSNorm, attend, pack
from whiflash.models.draft.rope import make_rope, rotate
from whiflash.models.linear import PackedLinear

CPU = torch.device("cpu")
SHAPE = DecoderShape(
    hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=10,
)  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
ROPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"rope_type": "default", "rope_theta": 10_000.0}),
    ({"rope_theta": 5e5}, {"rope_type": "default", "rope_theta": 5e5}),
    (
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5},
    ),
    ({"rope_theta": 5e5, "rope_scaling": LLAMA3}, {**LLAMA3, "rope_theta": 5e5}),
    ({"rope_parameters": {**YARN, "rope_theta": 1e6}}, {**YARN, "rope_theta": 1e6}),
    (
        {"rope_theta": 1, "rope_parameters": {**YARN, "rope_theta": 1e6}},
        {**YARN, "rope_theta": 1e6},
    ),
]


@pytest.mark.parametrize(("written", "meant"), ROPES)
def test_rope_of_both_spellings(written: dict[str, Any], meant: dict[str, Any]) -> None:
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=4, max_position_embeddings=8192, rope_parameters=meant
    )
    query = torch.randn(30, 4, 16)
    positions = torch.arange(30) * 97
    own = LlamaRotaryEmbedding(config)(query[None], positions[None])
    rows = query.transpose(0, 1)[None]
    expected, _ = apply_rotary_pos_emb(rows, rows, *own)
    rope = make_rope({**written, "max_position_embeddings": 8192}, SHAPE, torch.float32, CPU)
    found = rotate(query, rope.turns(positions))
    torch.testing.assert_close(found, expected[0].transpose(0, 1), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_and_mlp_equal_transformers(dtype: torch.dtype) -> None:
    x = torch.randn(7, 64, dtype=dtype)
    norm, own_norm = RMSNorm(64, 1e-5).to(dtype), LlamaRMSNorm(64, 1e-5).to(dtype)
    nn.init.normal_(own_norm.weight)
    norm.load_state_dict(own_norm.state_dict())
    assert torch.equal(norm(x), own_norm(x))
    config = LlamaConfig(hidden_size=64, intermediate_size=96)
    mlp, own_mlp = GatedMLP(SHAPE).to(dtype), LlamaMLP(config).to(dtype)
    mlp.load_state_dict(own_mlp.state_dict())
    torch.testing.assert_close(mlp(x), own_mlp(x))


def test_attention_sees_what_the_mask_says() -> None:
    query, keys, values = torch.randn(3, 4, 8), torch.randn(2, 9, 8), torch.randn(2, 9, 8)
    mask = torch.rand(3, 9) < 0.5
    mask[:, 0] = True
    found = attend(query, keys, values, mask, 8**-0.5).view(3, 4, 8)
    for row in range(3):
        for head in range(4):
            seen_keys, seen = keys[head // 2][mask[row]], values[head // 2][mask[row]]
            odds = (seen_keys @ query[row, head] / 8**0.5).softmax(0)
            torch.testing.assert_close(found[row, head], odds @ seen, atol=1e-6, rtol=1e-5)


def test_packed_rows_keep_their_bits() -> None:
    """Packing is done only where it makes a row's result a function of the row alone."""
    torch.manual_seed(0)
    mlp = GatedMLP(SHAPE).requires_grad_(False)
    x = torch.randn(32, 64)
    plain = mlp(x)
    with torch.inference_mode():
        if not pack(mlp, torch.float32):
            assert type(mlp.gate_proj) is nn.Linear
            return
        assert type(mlp.gate_proj) is PackedLinear
        torch.testing.assert_close(mlp(x), plain)
        alone = torch.cat([mlp(row[None]) for row in x])
        for count in (2, 5, 16, 31, 32):
            assert torch.equal(mlp(x[:count]), alone[:count])


def test_wide_floats_stay_plain() -> None:
    mlp = GatedMLP(SHAPE).double().requires_grad_(False)
    assert not pack(mlp, torch.float64)
    assert type(mlp.up_proj) is nn.Linear
