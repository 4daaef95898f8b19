"""Neural drafters for the toy target: public checkpoint layouts, random weights.

They guess badly (a tree holds the right token now and then, more often under shared noise), which
is what tests of exactness want: acceptance and rejection at every depth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from whiflash.drafters.ddtree import DDTreeDrafter
from whiflash.drafters.dflash import DFlashDrafter, DFlashOptions
from whiflash.drafters.dflash import load as load_dflash
from whiflash.drafters.eagle3 import Eagle3Options
from whiflash.drafters.eagle3 import load as load_eagle3
from whiflash.drafters.neural import NeuralDrafter
from whiflash.models.draft.target_parts import TargetParts
from whiflash.target.target import LocalTarget
from whiflash.testing.toy import CONTEXT_LIMIT, UNK_ID, VOCAB_SIZE, toy_config

AUTOREGRESSIVE = ("eagle3_chain", "eagle2", "talon")
BLOCK = ("dflash", "ddtree")
NEURAL = (*AUTOREGRESSIVE, *BLOCK)
_DRAFT_IDS = 40
_BLOCK = 6
_TREE_NODES = 12


class ToyDrafters:
    """Every kind of neural drafter for one toy target, which keeps their taps from now on. folder:
    where their checkpoints lie."""

    def __init__(self, folder: Path, target: LocalTarget) -> None:
        self.folder = folder
        self._eagle3, self._dflash = write_toy_eagle3(folder / "e"), write_toy_dflash(folder / "d")
        self._target = TargetParts.of_model(target.runner.model, target.info.context_limit)
        for name in ("eagle3_chain", "dflash"):
            drafter = self.make(name)
            target.keep_taps(drafter.weight_hash, drafter.boundaries, drafter.fuse)

    def make(self, name: str, context_limit: int | None = None) -> NeuralDrafter[Any]:
        """A drafter that has seen nothing; `name` is one of NEURAL."""
        if name in BLOCK:
            parts = load_dflash(
                self._dflash, self._target, DFlashOptions(context_limit=context_limit)
            )
            return DFlashDrafter(parts) if name == "dflash" else DDTreeDrafter(parts, _TREE_NODES)
        tree = name.removeprefix("eagle3_")
        options = replace(
            Eagle3Options.of_tree(tree), boundaries=(1, 2), context_limit=context_limit
        )
        if tree != "chain":
            options = replace(options, nodes=_TREE_NODES, top_k=4)
        return load_eagle3(self._eagle3, self._target, options)


def write_toy_eagle3(folder: Path, seed: int = 0) -> Path:
    """SafeAILab layout, two boundaries, a draft vocabulary of 40 of the 64 ids; load it with
    boundaries=1+2."""
    hidden, heads, width = _sizes()
    shapes = {
        "fc.weight": (hidden, 2 * hidden),
        "lm_head.weight": (_DRAFT_IDS, hidden),
        **_layer("midlayer", hidden, heads, width, inputs=2 * hidden),
        "midlayer.hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    tensors = _random(shapes, seed)
    is_drafted = torch.zeros(VOCAB_SIZE, dtype=torch.bool)
    is_drafted[VOCAB_SIZE - _DRAFT_IDS :] = True
    tensors["t2d"] = is_drafted
    ids = is_drafted.nonzero()[:, 0]
    tensors["d2t"] = ids - torch.arange(_DRAFT_IDS)
    settings = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": _DRAFT_IDS,
    }
    return _write(folder, tensors, settings)


def write_toy_dflash(folder: Path, seed: int = 0) -> Path:
    """z-lab layout, one layer, blocks of 6; its mask is the unknown token."""
    hidden, heads, width = _sizes()
    shapes = {
        "fc.weight": (hidden, 2 * hidden),
        **_layer("layers.0", hidden, heads, width, inputs=hidden),
        "layers.0.self_attn.q_norm.weight": (width,),
        "layers.0.self_attn.k_norm.weight": (width,),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    settings = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 1,
        "num_target_layers": toy_config().num_hidden_layers,
        "layer_types": ["full_attention"],
        "block_size": _BLOCK,
        "dflash_config": {"mask_token_id": UNK_ID, "target_layer_ids": [0, 1]},
        "use_sliding_window": False,
        "sliding_window": None,
    }
    return _write(folder, _random(shapes, seed), settings)


def _sizes() -> tuple[int, int, int]:
    config = toy_config()
    width = config.hidden_size // config.num_attention_heads
    return config.hidden_size, config.num_attention_heads, width


def _layer(
    name: str, hidden: int, heads: int, width: int, inputs: int
) -> dict[str, tuple[int, ...]]:
    config = toy_config()
    keys, inner = (config.num_key_value_heads or heads) * width, config.intermediate_size
    return {
        f"{name}.input_layernorm.weight": (hidden,),
        f"{name}.post_attention_layernorm.weight": (hidden,),
        f"{name}.self_attn.q_proj.weight": (heads * width, inputs),
        f"{name}.self_attn.k_proj.weight": (keys, inputs),
        f"{name}.self_attn.v_proj.weight": (keys, inputs),
        f"{name}.self_attn.o_proj.weight": (hidden, heads * width),
        f"{name}.mlp.gate_proj.weight": (inner, hidden),
        f"{name}.mlp.up_proj.weight": (inner, hidden),
        f"{name}.mlp.down_proj.weight": (hidden, inner),
    }


def _random(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.ones(shape)
        if len(shape) == 1
        else 2.0 * torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        for name, shape in shapes.items()
    }


def _write(folder: Path, tensors: dict[str, torch.Tensor], settings: dict[str, Any]) -> Path:
    config = toy_config()
    shared = {
        "attention_bias": False,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": CONTEXT_LIMIT,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": VOCAB_SIZE,
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(shared | settings, indent=1), encoding="utf-8")
    return folder
