"""Drafters of real shape with random weights: what they cost is real, what they guess is not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch
from safetensors.torch import save_file

EAGLE3_IDS: Final = 8192
DFLASH_LAYERS, DFLASH_BLOCK = 4, 8
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TargetShape:
    """Sizes that a drafter copies from its target's config.json."""

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_width: int
    vocab: int
    layers: int

    @classmethod
    def read(cls, folder: Path) -> Self:
        table = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        heads = table["num_attention_heads"]
        return cls(
            hidden=table["hidden_size"],
            inner=table["intermediate_size"],
            heads=heads,
            kv_heads=table["num_key_value_heads"],
            head_width=table.get("head_dim") or table["hidden_size"] // heads,
            vocab=table["vocab_size"],
            layers=table["num_hidden_layers"],
        )

    def layer(self, name: str, inputs: int) -> Shapes:
        """A Llama layer whose attention reads `inputs` numbers a position."""
        keys = self.kv_heads * self.head_width
        return {
            f"{name}.input_layernorm.weight": (self.hidden,),
            f"{name}.post_attention_layernorm.weight": (self.hidden,),
            f"{name}.self_attn.q_proj.weight": (self.heads * self.head_width, inputs),
            f"{name}.self_attn.k_proj.weight": (keys, inputs),
            f"{name}.self_attn.v_proj.weight": (keys, inputs),
            f"{name}.self_attn.o_proj.weight": (self.hidden, self.heads * self.head_width),
            f"{name}.mlp.gate_proj.weight": (self.inner, self.hidden),
            f"{name}.mlp.up_proj.weight": (self.inner, self.hidden),
            f"{name}.mlp.down_proj.weight": (self.hidden, self.inner),
        }


def write_eagle3(folder: Path, target: TargetShape) -> Path:
    """SafeAILab layout: one layer, three boundaries, 8192 draft ids."""
    shapes = {
        "fc.weight": (target.hidden, 3 * target.hidden),
        "lm_head.weight": (EAGLE3_IDS, target.hidden),
        **target.layer("midlayer", 2 * target.hidden),
        "midlayer.hidden_norm.weight": (target.hidden,),
        "norm.weight": (target.hidden,),
    }
    tensors = _random(shapes)
    tensors["t2d"] = torch.arange(target.vocab) < EAGLE3_IDS
    tensors["d2t"] = torch.zeros(EAGLE3_IDS, dtype=torch.long)
    settings = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": EAGLE3_IDS,
    }
    return _write(folder, tensors, target, settings)


def write_dflash(folder: Path, target: TargetShape) -> Path:
    """z-lab layout: four layers, five boundaries, blocks of eight."""
    shapes = {
        "fc.weight": (target.hidden, 5 * target.hidden),
        "hidden_norm.weight": (target.hidden,),
        "norm.weight": (target.hidden,),
    }
    for number in range(DFLASH_LAYERS):
        name = f"layers.{number}"
        shapes |= target.layer(name, target.hidden)
        shapes |= {f"{name}.self_attn.{part}_norm.weight": (target.head_width,) for part in "qk"}
    taps = [1 + step * (target.layers - 4) // 4 for step in range(5)]
    settings = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": DFLASH_LAYERS,
        "num_target_layers": target.layers,
        "layer_types": ["full_attention"] * DFLASH_LAYERS,
        "block_size": DFLASH_BLOCK,
        "dflash_config": {"mask_token_id": 0, "target_layer_ids": taps},
        "use_sliding_window": False,
        "sliding_window": None,
    }
    return _write(folder, _random(shapes), target, settings)


def _random(shapes: Shapes) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.ones(shape)
        if len(shape) == 1
        else torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        for name, shape in shapes.items()
    }


def _write(
    folder: Path, tensors: dict[str, torch.Tensor], target: TargetShape, settings: dict[str, Any]
) -> Path:
    shared = {
        "attention_bias": False,
        "head_dim": target.head_width,
        "hidden_act": "silu",
        "hidden_size": target.hidden,
        "intermediate_size": target.inner,
        "max_position_embeddings": 8192,
        "num_attention_heads": target.heads,
        "num_key_value_heads": target.kv_heads,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 100000.0,
        "tie_word_embeddings": False,
        "vocab_size": target.vocab,
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(shared | settings, indent=1), encoding="utf-8")
    return folder
