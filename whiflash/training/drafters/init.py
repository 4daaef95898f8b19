"""Weights that a training begins with: those of a checkpoint of the very same shape.

What is published for a target, or was trained before, goes on on other text or for more steps.
Optimiser and schedule begin anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from whiflash.core.errors import ConfigError
from whiflash.drafters.dflash.config import DFlashConfig
from whiflash.drafters.dflash.load import read_config
from whiflash.drafters.eagle3.layouts import default_boundaries, read_layout
from whiflash.drafters.eagle3.model import Eagle3Variant
from whiflash.models.draft.checkpoint import DraftCheckpoint
from whiflash.models.draft.config import DecoderShape
from whiflash.models.draft.rope import make_rope
from whiflash.models.draft.vocabulary import DraftVocabulary
from whiflash.training.features.facts import TargetEnds, TargetFacts


@dataclass(frozen=True, slots=True)
class StartPoint:
    """A checkpoint read for training.

    weights: by the parameter names of the arm's module. ids: int64, ascending, what it drafts.
    facts: what it is, by name, to be held against what is trained. mask_id: DFlash's.
    """

    folder: Path
    weights: Mapping[str, torch.Tensor]
    ids: torch.Tensor
    facts: Mapping[str, Any]
    mask_id: int | None = None

    def into(self, module: nn.Module, facts: Mapping[str, Any]) -> None:
        """Copies the weights into `module`, which `facts` describe. Raises ConfigError, naming
        the first thing that differs."""
        for key, wanted in facts.items():
            self._require(key, self.facts.get(key), wanted)
        parameters = dict(module.named_parameters())
        for name in sorted({*parameters, *self.weights}):
            shapes = [tuple(t[name].shape) if name in t else None
                      for t in (self.weights, parameters)]  # fmt: skip
            self._require(name, *shapes)
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(self.weights[name])

    def _require(self, key: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise ConfigError(
                f"--init {self.folder} has {key} = {found}, but what is trained here has {wanted}; "
                "give the same flags and features as it was made with, or train without --init"
            )

    def record(self) -> dict[str, Any]:
        """JSON-able: which weights these are, and how long they were trained if that is known."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.weights.items()):
            digest.update(name.encode())
            digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
        return {"weights": digest.hexdigest()[:16], **_training_of(self.folder)}


def _training_of(folder: Path) -> dict[str, Any]:
    path = folder / "training.json"
    if not path.is_file():
        return {}
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return {"steps": int(table["steps"]), "tokens_seen": int(table["tokens_seen"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged; take a whole checkpoint for --init") from error


def _shape_facts(shape: DecoderShape, rope: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal of a decoder, by the names of config.json."""
    turns = make_rope(rope, shape, torch.float32, torch.device("cpu")).turns(torch.arange(64))
    digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in turns)).hexdigest()
    return {
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_width,
        "num_hidden_layers": shape.num_hidden_layers,
        "vocab_size": shape.vocab_size,
        "rms_norm_eps": float(np.float32(shape.rms_norm_eps)),
        "rotary turns": digest[:8],
    }


def eagle3_start(folder: Path, facts: TargetFacts, ends: TargetEnds) -> StartPoint:
    """Any layout that the engine reads. Raises ModelError or UnsupportedModelError as loading it
    would, ConfigError if it has an embedding other than the target's."""
    checkpoint = DraftCheckpoint.read(folder)
    layout = read_layout(checkpoint, None, facts.hidden_size)
    variant = layout.variant
    _require_no_ends(folder, layout.embedding, ends)
    vocabulary = DraftVocabulary.of_offsets(
        layout.d2t, layout.t2d, variant.draft_vocab_size, facts.vocab_size, folder
    )
    boundaries = layout.boundaries or default_boundaries(facts.num_layers, folder)
    found = eagle3_facts(variant, layout.rope, boundaries)
    ids = torch.from_numpy(vocabulary.target_ids).long()
    return StartPoint(folder, layout.body, ids, found)


def eagle3_facts(
    variant: Eagle3Variant, rope: Mapping[str, Any], boundaries: Sequence[int]
) -> dict[str, Any]:
    """With the switches by which heads compute differently."""
    switches = (
        "norm_before_fc", "has_fc_norms", "norm_before_residual", "feeds_normed", "has_head_norms"
    )  # fmt: skip
    return {
        **_shape_facts(variant.shape, rope),
        "boundaries": boundaries,
        **{name: bool(getattr(variant, name)) for name in switches},
    }


def dflash_start(folder: Path, facts: TargetFacts, ends: TargetEnds) -> StartPoint:
    """As `eagle3_start`; a head of its own or a reduced vocabulary is refused."""
    checkpoint = DraftCheckpoint.read(folder)
    config = read_config(checkpoint)
    box = checkpoint.box()
    _require_no_ends(folder, box.take_optional("embed_tokens.weight"), ends)
    if box.take_optional("lm_head.weight") is not None or config.draft_vocab_size != (
        config.shape.vocab_size
    ):
        raise ConfigError(f"--init {folder} has a head of its own; dflash is trained on the "
                          "target's: take a checkpoint without")  # fmt: skip
    ids = torch.arange(facts.vocab_size)
    return StartPoint(folder, box.take_rest(), ids, dflash_facts(config), config.mask_token_id)


def dflash_facts(config: DFlashConfig) -> dict[str, Any]:
    """With what a block is and sees."""
    return {
        **_shape_facts(config.shape, config.rope_table),
        "boundaries": config.boundaries,
        "block_size": config.block_size,
        "sights": config.sights,
    }


def _require_no_ends(folder: Path, embedding: torch.Tensor | None, ends: TargetEnds) -> None:
    if embedding is None:
        return
    target = ends.embedding.cpu()
    if embedding.shape != target.shape or not torch.equal(embedding.to(target.dtype), target):
        raise ConfigError(f"--init {folder} has an embedding of its own; training works on the "
                          "target's: take a checkpoint without")  # fmt: skip
