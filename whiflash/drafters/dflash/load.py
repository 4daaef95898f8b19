"""Loading a DFlash checkpoint beside its target: read, refuse, fill, pack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from whiflash.core.errors import ConfigError, ModelError, UnsupportedModelError
from whiflash.drafters.dflash.config import DFlashConfig
from whiflash.drafters.dflash.model import DFlashModel
from whiflash.drafters.dflash.options import DFlashOptions
from whiflash.drafters.dflash.speculators import read_speculators
from whiflash.drafters.dflash.zlab import read_zlab
from whiflash.models.draft.boundaries import require_boundaries
from whiflash.models.draft.cache import DraftCacheShape
from whiflash.models.draft.checkpoint import DraftCheckpoint, TensorBox, fill
from whiflash.models.draft.config import require_plain
from whiflash.models.draft.layers import linear_of, pack
from whiflash.models.draft.rope import Rope, make_rope
from whiflash.models.draft.target_parts import TargetParts
from whiflash.models.draft.vocabulary import DraftVocabulary, require_same_ids
from whiflash.models.draft.weights import hash_tensors

_DEFAULTS = DFlashOptions()
# Parts of tensor names that give a variant away.
_FOREIGN = {
    "qkv_proj": "fused projections",
    "gate_up_proj": "fused projections",
    "g_proj": "gated attention",
    "aux_hidden_norms": "a norm per tap (Laguna)",
    "encoder.": "an encoder of taps (Muse-Glimmer)",
    "mask_embedding": "a mask embedding of its own",
    "sinks": "attention sinks",
    "_conv.": "DFlash 2",
    "candidate_selector": "DFlash 2",
    "markov": "a DSpark projector",
    "confidence_head": "a DSpark projector",
    "gru": "a Domino projector",
}


@dataclass(frozen=True, slots=True)
class DFlashParts:
    """A checkpoint made ready: what a drafter on it needs.

    embedding:  [rows, h]; head: [n, h] -> [n, draft vocabulary]; both the checkpoint's own where
                it has them, else the target's.
    block_size: slots of a block at run time, the root's included.
    is_bitwise: a row's draft has the same bits whatever is beside it (the head's part of it is
                the head's).
    notes:      what was resolved, for the plan.
    """

    model: DFlashModel
    rope: Rope
    embedding: torch.Tensor
    head: Callable[[torch.Tensor], torch.Tensor]
    vocabulary: DraftVocabulary
    cache_shape: DraftCacheShape
    boundaries: tuple[int, ...]
    block_size: int
    mask_token_id: int
    context_limit: int
    weight_hash: str
    is_bitwise: bool
    notes: tuple[str, ...]


def read_config(
    checkpoint: DraftCheckpoint, boundaries: tuple[int, ...] | None = None
) -> DFlashConfig:
    """The settings, by the layout that the config shows. Raises ModelError."""
    is_speculators = "speculators_model_type" in checkpoint.config
    read = read_speculators if is_speculators else read_zlab
    return read(checkpoint.config, checkpoint.folder, boundaries)


def load(folder: Path, target: TargetParts, options: DFlashOptions = _DEFAULTS) -> DFlashParts:
    """Reads the folder's checkpoint for `target`, in the target's dtype on its device.

    Raises ModelError (damaged, or made for another target), UnsupportedModelError (a variant,
    named) or ConfigError (an option that does not fit), each in one line.
    """
    checkpoint = DraftCheckpoint.read(folder)
    config = read_config(checkpoint, options.boundaries)
    _require_fit(config, checkpoint, target)
    block_size = _block_size(config, options)
    box = checkpoint.box()
    vocabulary = DraftVocabulary.of_offsets(
        box.take_optional("d2t"),
        box.take_optional("t2d"),
        config.draft_vocab_size,
        target.vocab_size,
        folder,
    )
    own_embedding, own_head = _own_ends(config, box)
    _require_same_width(config, target, folder, own_embedding, own_head)
    embedding = target.embedding if own_embedding is None else _placed(own_embedding, target)
    if own_head is None:
        head = _borrowed_head(target, vocabulary)
    else:
        head = linear_of(_placed(own_head, target))
    mask_token_id = _mask_token_id(config, options, len(embedding), folder)
    model, weight_hash, is_packed = _model(config, box, target, folder)
    context_limit = (
        options.context_limit or config.shape.max_position_embeddings or target.context_limit
    )
    return DFlashParts(
        model=model,
        rope=make_rope(config.rope_table, config.shape, target.dtype, target.device),
        embedding=embedding,
        head=head,
        vocabulary=vocabulary,
        cache_shape=_cache_shape(config, target),
        boundaries=config.boundaries,
        block_size=block_size,
        mask_token_id=mask_token_id,
        context_limit=context_limit,
        weight_hash=weight_hash,
        is_bitwise=is_packed,
        notes=_notes(config, block_size, mask_token_id, vocabulary, own_head is not None),
    )


def _require_fit(config: DFlashConfig, checkpoint: DraftCheckpoint, target: TargetParts) -> None:
    folder, shape = checkpoint.folder, config.shape
    require_plain(shape, folder)
    for name in sorted(checkpoint.tensors):
        for part, what in _FOREIGN.items():
            if part in name:
                raise UnsupportedModelError(f"{folder} holds {name}: {what} is not supported")
    require_same_ids(folder, shape.vocab_size, target.vocab_size, target.tokenizer_fingerprint)
    if config.num_target_layers not in (None, target.num_layers):
        raise ModelError(
            f"{folder} was made for a target of {config.num_target_layers} layers, this one has "
            f"{target.num_layers}; take the target it was made for"
        )
    require_boundaries(config.boundaries, target.num_layers, folder)
    fc = checkpoint.tensors.get("fc.weight")
    width = len(config.boundaries) * target.hidden_size
    if fc is not None and (fc.dim() != 2 or fc.shape[1] != width):
        raise ModelError(
            f"{folder}: fc.weight {tuple(fc.shape)} does not take {len(config.boundaries)} taps of "
            f"{target.hidden_size} numbers; take the target it was made for, or give boundaries=..."
        )


def _block_size(config: DFlashConfig, options: DFlashOptions) -> int:
    asked = config.block_size if options.block is None else options.block
    if not 2 <= asked <= config.block_size:
        raise ConfigError(
            f"block={asked} does not fit: the drafter was trained for blocks of "
            f"{config.block_size}; take 2 to {config.block_size}"
        )
    return asked


def _own_ends(
    config: DFlashConfig, box: TensorBox
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Embedding and head, where the checkpoint has its own."""
    shape = config.shape
    embedding = box.take_optional("embed_tokens.weight", (shape.vocab_size, shape.hidden_size))
    head = box.take_optional("lm_head.weight", (config.draft_vocab_size, shape.hidden_size))
    return embedding, head


def _require_same_width(
    config: DFlashConfig,
    target: TargetParts,
    folder: Path,
    embedding: torch.Tensor | None,
    head: torch.Tensor | None,
) -> None:
    if config.shape.hidden_size != target.hidden_size and (embedding is None or head is None):
        raise ModelError(
            f"{folder} is {config.shape.hidden_size} wide and lacks an embedding or a head of its "
            f"own, but the target's are {target.hidden_size} wide; take the target it was made for"
        )


def _placed(tensor: torch.Tensor, target: TargetParts) -> torch.Tensor:
    return tensor.to(device=target.device, dtype=target.dtype).contiguous()


def _borrowed_head(
    target: TargetParts, vocabulary: DraftVocabulary
) -> Callable[[torch.Tensor], torch.Tensor]:
    if vocabulary.is_whole:
        return target.head
    columns = torch.from_numpy(vocabulary.target_ids).to(target.device)
    return lambda hidden: target.head(hidden)[:, columns]


def _mask_token_id(
    config: DFlashConfig, options: DFlashOptions, num_rows: int, folder: Path
) -> int:
    found = config.mask_token_id if options.mask_id is None else options.mask_id
    if found is None:
        raise ModelError(
            f"{folder / 'config.json'} has no mask_token_id; give the option mask_id=..."
        )
    if found >= num_rows:
        raise ModelError(
            f"{folder}: mask_token_id {found} is beyond the {num_rows} rows of the embedding"
        )
    return found


def _model(
    config: DFlashConfig, box: TensorBox, target: TargetParts, folder: Path
) -> tuple[DFlashModel, str, bool]:
    """The filled network, the name of its taps, and whether its rows are bitwise."""
    with torch.device("meta"):
        model = DFlashModel(config, target.hidden_size)
    body = box.take_rest()
    fill(model, body, folder, target.dtype, target.device)
    fusing = {name: body[name] for name in ("fc.weight", "hidden_norm.weight")}
    facts = (config.boundaries, target.dtype, config.shape.rms_norm_eps)
    return model, hash_tensors(fusing, "dflash", *facts), pack(model, target.dtype)


def _cache_shape(config: DFlashConfig, target: TargetParts) -> DraftCacheShape:
    shape = config.shape
    return DraftCacheShape(
        shape.num_hidden_layers, shape.num_kv_heads, shape.head_width, target.dtype, target.device
    )


def _notes(
    config: DFlashConfig,
    block_size: int,
    mask_token_id: int,
    vocabulary: DraftVocabulary,
    has_head: bool,
) -> tuple[str, ...]:
    num_causal = sum(sight.is_causal for sight in config.sights)
    windows = sorted({s.window_tokens for s in config.sights if s.window_tokens is not None})
    return (
        f"{config.layout} layout, boundaries {'+'.join(map(str, config.boundaries))}",
        f"block {block_size} of {config.block_size}, mask id {mask_token_id}",
        f"{num_causal} of {len(config.sights)} layers causal, windows {windows or 'none'}",
        f"{len(vocabulary)} of {vocabulary.target_size} ids drafted, "
        f"{'own' if has_head else 'target'} head",
    )
