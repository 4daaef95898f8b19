"""The network against a dense recomputation: windows, causal layers, biases, cropped contexts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from whiflash.drafters.dflash.config import DecoderTable, DFlashConfig
from whiflash.drafters.dflash.model import DFlashModel
from whiflash.drafters.dflash.sight import LayerSight
from whiflash.drafters.dflash.speculators import read_speculators
from whiflash.drafters.dflash.zlab import read_zlab
from whiflash.models.draft.cache import DraftCache, DraftCacheShape
from whiflash.models.draft.rope import Rope, make_rope, rotate

HERE = Path("checkpoint")
CPU = torch.device("cpu")
TABLE = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "head_dim": 8,
    "vocab_size": 50,
    "attention_bias": True,
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
}
SIGHTS = {
    "plain": LayerSight(),
    "causal": LayerSight(is_causal=True),
    "window": LayerSight(window_tokens=5),
    "causal window": LayerSight(is_causal=True, window_tokens=6),
    "anchored window": LayerSight(is_causal=True, window_tokens=4, is_anchored=True),
    "window inside the block": LayerSight(window_tokens=2),
}


def build(sights: tuple[LayerSight, ...]) -> tuple[DFlashModel, Rope, DraftCacheShape]:
    shape = DecoderTable.model_validate(TABLE)
    config = DFlashConfig("z-lab", shape, TABLE, (1, 2), 6, 49, 50, None, sights)
    model = DFlashModel(config, 24).double()
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        nn.init.normal_(weight, 0.3, 0.4, generator=generator)
    rope = make_rope(TABLE, shape, torch.float64, CPU)
    return model.requires_grad_(False), rope, DraftCacheShape(2, 2, 8, torch.float64, CPU)


def dense(
    model: DFlashModel, rope: Rope, fused: torch.Tensor, block: torch.Tensor, start: int
) -> torch.Tensor:
    """One sequence without any cache: each layer sees context and block as one row of keys."""
    count, slots = len(fused), len(block)
    root = start + count
    positions = torch.arange(start, root + slots)
    hidden = block
    for layer in model.layers:
        attention, x = layer.self_attn, layer.input_layernorm(hidden)
        rows = torch.cat([fused, x])
        turns = rope.turns(positions)
        keys = rotate(attention.k_norm(attention.k_proj(rows).view(-1, 2, 8)), turns)
        values = attention.v_proj(rows).view(-1, 2, 8)
        query = rotate(
            attention.q_norm(attention.q_proj(x).view(-1, 4, 8)), rope.turns(positions[count:])
        )
        scores = torch.einsum("qhd,khd->hqk", query, keys.repeat_interleave(2, 1)) / 8**0.5
        is_seen = torch.tensor(
            [
                [sees(layer.sight, root, slot, key) for key in positions.tolist()]
                for slot in range(root, root + slots)
            ]
        )
        weights = torch.where(is_seen, scores, -torch.inf).softmax(-1)
        out = torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(2, 1))
        hidden = hidden + attention.o_proj(out.reshape(slots, -1))
        y, mlp = layer.post_attention_layernorm(hidden), layer.mlp
        hidden = hidden + mlp.down_proj(functional.silu(mlp.gate_proj(y)) * mlp.up_proj(y))
    result: torch.Tensor = model.norm(hidden)
    return result


def sees(sight: LayerSight, root: int, slot: int, key: int) -> bool:
    is_past = not sight.is_causal or key <= slot
    if sight.window_tokens is None:
        return is_past
    if sight.is_anchored:
        return is_past and root - key <= sight.window_tokens
    return is_past and abs(slot - key) < sight.window_tokens


@pytest.mark.parametrize("name", list(SIGHTS))
@pytest.mark.parametrize("start", [0, 7])
def test_blocks_equal_a_dense_recomputation(name: str, start: int) -> None:
    """Two sequences in one pass, the context absorbed in pieces, one of them from a window."""
    model, rope, shape = build((SIGHTS[name], LayerSight()))
    generator = torch.Generator().manual_seed(1)
    contexts = [torch.randn(n, 24, generator=generator, dtype=torch.float64) for n in (13, 1)]
    blocks = torch.randn(2, 6, 24, generator=generator, dtype=torch.float64)
    caches = [DraftCache(shape, start), DraftCache(shape)]
    model.absorb(torch.cat([contexts[0][:4], contexts[1]]), [4, 1], caches, rope)
    model.fill(blocks.flatten(0, 1), caches, rope)
    model.absorb(contexts[0][4:], [9], caches[:1], rope)
    found = model.fill(blocks.flatten(0, 1), caches, rope).view(2, 6, 24)
    for number, first in enumerate((start, 0)):
        expected = dense(model, rope, contexts[number], blocks[number], first)
        torch.testing.assert_close(found[number], expected, rtol=0, atol=1e-9)


SLIDING = ["sliding_attention", "full_attention"]
ZLAB = {
    **TABLE,
    "architectures": ["DFlashDraftModel"],
    "num_target_layers": 8,
    "dflash_config": {"mask_token_id": 49, "target_layer_ids": [1, 5]},
}


def zlab_sights(config: dict[str, object], **method: object) -> tuple[LayerSight, ...]:
    table = {**ZLAB, **config, "dflash_config": {**ZLAB["dflash_config"], **method}}  # type: ignore[dict-item]
    return read_zlab(table, HERE).sights


def test_a_z_lab_layer_is_causal_where_it_slides_unless_the_config_says_otherwise() -> None:
    slides = {"layer_types": SLIDING, "sliding_window": 64}
    plain = LayerSight()
    assert zlab_sights({}) == (plain, plain)
    assert zlab_sights(slides) == (LayerSight(True, 64), plain)
    assert zlab_sights(slides, causal=False) == (LayerSight(False, 64), plain)
    assert zlab_sights(slides, causal=True) == (LayerSight(True, 64), LayerSight(True))
    assert zlab_sights({**slides, "is_causal": False}, causal=True) == (
        LayerSight(False, 64),
        plain,
    )
    assert zlab_sights({}, use_swa=True, swa_window_size=32) == (LayerSight(False, 32),) * 2


@pytest.mark.parametrize("is_non_causal", [False, True])
def test_a_speculators_window_hangs_on_the_root(is_non_causal: bool) -> None:
    config = {
        "speculators_model_type": "dflash",
        "transformer_layer_config": {**TABLE, "layer_types": SLIDING, "sliding_window": 64},
        "aux_hidden_state_layer_ids": [2, 6],
        "mask_token_id": 49,
        "draft_vocab_size": 50,
        "sliding_window_non_causal": is_non_causal,
    }
    window = LayerSight(not is_non_causal, 64, is_anchored=True)
    read = read_speculators(config, HERE)
    assert read.sights == (window, LayerSight())
    assert (read.block_size, read.boundaries) == (8, (2, 6))
