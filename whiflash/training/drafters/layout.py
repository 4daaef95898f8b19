"""Checkpoint folders: a decoder's config as both layouts spell it, and the files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from whiflash.training.features.facts import TargetFacts
from whiflash.training.files import write_whole


def decoder_table(facts: TargetFacts, *, model_type: str, num_layers: int) -> dict[str, Any]:
    """A decoder of the target's own sizes."""
    rope = dict(facts.rope)
    return {
        "model_type": model_type,
        "attention_bias": False,
        "head_dim": facts.head_width,
        "hidden_act": "silu",
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "max_position_embeddings": facts.context_limit,
        "num_attention_heads": facts.num_heads,
        "num_hidden_layers": num_layers,
        "num_key_value_heads": facts.num_kv_heads,
        "rms_norm_eps": facts.norm_eps,
        "rope_theta": rope.get("rope_theta", 10_000.0),
        "rope_parameters": rope,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "vocab_size": facts.vocab_size,
    }


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    card: str,
    training: Mapping[str, Any],
) -> None:
    """config.json, model.safetensors, README.md and training.json, the weights last, so that a
    folder with weights is complete."""
    write_whole(folder / "config.json", _json(config))
    write_whole(folder / "training.json", _json(training))
    write_whole(folder / "README.md", card.encode())
    placed = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_whole(folder / "model.safetensors", save(placed, {"format": "pt"}))


def _json(table: Mapping[str, Any]) -> bytes:
    return json.dumps(table, indent=1).encode() + b"\n"
