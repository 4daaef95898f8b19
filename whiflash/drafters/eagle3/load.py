"""Loading an EAGLE-3 drafter for a target: recognise, check, fill, name."""

from __future__ import annotations

from pathlib import Path

import torch

from whiflash.core.errors import ModelError
from whiflash.drafters.eagle3.drafter import Eagle3Drafter, Eagle3Parts
from whiflash.drafters.eagle3.layouts import Eagle3Layout, default_boundaries, read_layout
from whiflash.drafters.eagle3.model import Eagle3Body
from whiflash.drafters.eagle3.options import Eagle3Options
from whiflash.models.draft.boundaries import require_boundaries
from whiflash.models.draft.checkpoint import DraftCheckpoint, fill
from whiflash.models.draft.layers import pack
from whiflash.models.draft.rope import make_rope
from whiflash.models.draft.target_parts import TargetParts
from whiflash.models.draft.vocabulary import DraftVocabulary, require_same_ids
from whiflash.models.draft.weights import hash_tensors


def load(folder: Path, target: TargetParts, options: Eagle3Options | None = None) -> Eagle3Drafter:
    """The drafter in `folder` for `target`, in the target's dtype and on its device.

    Raises ModelError (damaged, or made for another target), UnsupportedModelError (a variant that
    is refused by name) or ConfigError (options), each in one line.
    """
    options = options or Eagle3Options()
    asked = options.boundaries
    checkpoint = DraftCheckpoint.read(folder)
    layout = read_layout(checkpoint, len(asked) if asked else None, target.hidden_size)
    require_same_ids(folder, layout.vocab_size, target.vocab_size, target.tokenizer_fingerprint)
    boundaries = _boundaries(layout, asked, target, folder)
    parts = _parts(layout, boundaries, target, options, checkpoint)
    return Eagle3Drafter(parts, options)


def _boundaries(
    layout: Eagle3Layout, asked: tuple[int, ...] | None, target: TargetParts, folder: Path
) -> tuple[int, ...]:
    found = asked or layout.boundaries or default_boundaries(target.num_layers, folder)
    return require_boundaries(found, target.num_layers, folder)


def _parts(
    layout: Eagle3Layout,
    boundaries: tuple[int, ...],
    target: TargetParts,
    options: Eagle3Options,
    checkpoint: DraftCheckpoint,
) -> Eagle3Parts:
    folder, variant = checkpoint.folder, layout.variant
    vocabulary = DraftVocabulary.of_offsets(
        layout.d2t, layout.t2d, variant.draft_vocab_size, target.vocab_size, folder
    )
    embedding = _embedding(layout, target, folder)
    with torch.device("meta"):
        body = Eagle3Body(variant)
    fill(body, layout.body, folder, target.dtype, target.device)
    weight_hash = hash_tensors(checkpoint.tensors, boundaries, str(target.dtype), variant)
    is_packed = pack(body, target.dtype)
    return Eagle3Parts(
        body=body,
        rope=make_rope(layout.rope, variant.shape, target.dtype, target.device),
        vocabulary=vocabulary,
        embedding=embedding,
        boundaries=boundaries,
        weight_hash=weight_hash,
        context_limit=min(options.context_limit or target.context_limit, target.context_limit),
        notes=(
            f"layout {layout.origin}, taps at boundaries {list(boundaries)} of {target.num_layers}",
            f"drafts {len(vocabulary)} of {target.vocab_size} ids",
            f"embedding {'of the target' if layout.embedding is None else 'of its own'}",
            f"linear layers {'packed' if is_packed else 'plain'}",
            *layout.notes,
        ),
    )


def _embedding(layout: Eagle3Layout, target: TargetParts, folder: Path) -> torch.Tensor:
    width, found = layout.variant.shape.hidden_size, target.embedding.shape[1]
    if layout.embedding is not None:
        return layout.embedding.to(device=target.device, dtype=target.dtype)
    if found != width:
        raise ModelError(
            f"{folder} has no embedding of its own, and the target's is {found} wide, not {width}; "
            "take the target it was made for"
        )
    return target.embedding
