"""What a DFlash checkpoint is, whichever layout it came in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whiflash.core.errors import ModelError, UnsupportedModelError
from whiflash.drafters.dflash.sight import LayerSight
from whiflash.models.draft.boundaries import from_layer_outputs
from whiflash.models.draft.config import (
    FULL_ATTENTION,
    SCALES,
    DecoderShape,
    Size,
    Variants,
    require_none_of,
)

FULL, SLIDING = FULL_ATTENTION, "sliding_attention"
MOST_SLOTS = 1 << 16  # beyond, a config is damaged
_PLAIN_PROJECTORS = (None, "", "dflash", "none")
VARIANTS: Variants = {
    "conv_kernel_size": ("DFlash 2 (convolutions around its layers)", False),
    "conv_group_size": ("DFlash 2 (convolutions around its layers)", False),
    "selector_rank": ("DFlash 2 (a candidate selector)", False),
    "selector_top_k": ("DFlash 2 (a candidate selector)", False),
    "markov_rank": ("a DSpark projector", False),
    "gru_hidden_dim": ("a Domino projector", False),
    "emb_dim": ("a Domino projector", False),
    "shift_label": ("shifted labels (slot i drafts the token behind its own)", False),
    **SCALES,
}


class DecoderTable(DecoderShape):
    """The keys of the decoder that every layout spells alike."""

    sliding_window: Size | None = None
    max_position_embeddings: Size | None = None


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """A checkpoint's settings in one form.

    layout:            "z-lab" (SpecForge writes the same) or "speculators".
    rope_table:        the table that holds the rope keys.
    boundaries:        taps, in the numbering of `models.draft.boundaries`.
    block_size:        trained slots of a block, the root's included.
    mask_token_id:     None where the checkpoint leaves it open.
    draft_vocab_size:  rows of the drafter's logits; `shape.vocab_size` counts the target's ids.
    num_target_layers: None where the checkpoint does not say.
    """

    layout: str
    shape: DecoderTable
    rope_table: Mapping[str, Any]
    boundaries: tuple[int, ...]
    block_size: int
    mask_token_id: int | None
    draft_vocab_size: int
    num_target_layers: int | None
    sights: tuple[LayerSight, ...]


def default_boundaries(num_target_layers: int, num_taps: int) -> tuple[int, ...]:
    """Where a drafter that does not say was tapped: evenly from layer 1 to layer n - 3, the middle
    for one tap. Halves round to even, as in z-lab's `build_target_layer_ids`."""
    if num_taps == 1:
        return from_layer_outputs([num_target_layers // 2])
    step = (num_target_layers - 4) / (num_taps - 1)
    return from_layer_outputs([round(1 + i * step) for i in range(num_taps)])


def require_plain_method(table: Mapping[str, Any], source: Path) -> None:
    """Raises UnsupportedModelError, naming the variant, where the table makes the drafter another
    one than DFlash's first."""
    projector = table.get("projector_type")
    if projector not in _PLAIN_PROJECTORS:
        raise UnsupportedModelError(
            f"{source} has projector_type {projector!r}; the dflash drafter runs checkpoints "
            "without a projector only"
        )
    require_none_of(VARIANTS, table, source)


def require_layer_types(shape: DecoderTable, source: Path, *, all_slide: bool = False) -> None:
    """Raises ModelError or UnsupportedModelError unless every layer is known to be full or
    sliding. all_slide: what another key says where there are no types."""
    kinds = shape.layer_types
    if kinds is None and shape.use_sliding_window and not all_slide:
        raise UnsupportedModelError(
            f"{source} has use_sliding_window without layer_types, which would say which layers do"
        )
    if kinds is None:
        return
    if len(kinds) != shape.num_hidden_layers:
        raise ModelError(
            f"{source / 'config.json'}: {len(kinds)} layer_types for {shape.num_hidden_layers} "
            "layers"
        )
    unknown = sorted(set(kinds) - {FULL, SLIDING})
    if unknown:
        raise UnsupportedModelError(
            f"{source}: a layer of type {unknown[0]!r} is not supported; a DFlash drafter has "
            f"{FULL} and {SLIDING}"
        )


def require_window(window: int | None, source: Path) -> int:
    """A sliding layer's window. Raises ModelError where the checkpoint has none."""
    if window is None:
        raise ModelError(f"{source / 'config.json'}: sliding layers need sliding_window, in tokens")
    return window
