"""The layout of vllm-project/speculators, `speculators_model_type` "dflash"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from whiflash.core.errors import ModelError, UnsupportedModelError
from whiflash.drafters.dflash.config import (
    MOST_SLOTS,
    SLIDING,
    DecoderTable,
    DFlashConfig,
    require_layer_types,
    require_plain_method,
    require_window,
)
from whiflash.drafters.dflash.sight import LayerSight
from whiflash.models.draft.config import Size, parse
from whiflash.models.draft.lossless import require_lossless

LAYOUT = "speculators"
MODEL_TYPE = "dflash"
DEFAULT_BLOCK_SIZE = 8
_PARSED = ConfigDict(extra="ignore", frozen=True, strict=True)


class _Table(BaseModel):
    """config.json."""

    model_config = _PARSED

    transformer_layer_config: DecoderTable
    aux_hidden_state_layer_ids: list[int] | None = None
    block_size: int = Field(default=DEFAULT_BLOCK_SIZE, ge=2, le=MOST_SLOTS)
    mask_token_id: int | None = Field(default=None, ge=0)
    draft_vocab_size: Size
    sample_from_anchor: bool = False
    sliding_window_non_causal: bool = False


def read_speculators(
    config: Mapping[str, Any], source: Path, boundaries: tuple[int, ...] | None = None
) -> DFlashConfig:
    """`boundaries`: the user's own, instead of the checkpoint's. Raises ModelError, or
    UnsupportedModelError naming the variant."""
    kind = config.get("speculators_model_type")
    if kind != MODEL_TYPE:
        raise UnsupportedModelError(
            f"{source} has speculators_model_type {kind!r}; the dflash drafter runs {MODEL_TYPE!r} "
            "only"
        )
    table = parse(_Table, config, source)
    require_lossless(config, source)
    for found in (config, config["transformer_layer_config"]):
        require_plain_method(found, source)
    if table.sample_from_anchor:
        raise UnsupportedModelError(
            f"{source} has sample_from_anchor (a slot drafts the token behind its own, as DSpark "
            "does): not supported"
        )
    shape = table.transformer_layer_config
    require_layer_types(shape, source)
    return DFlashConfig(
        layout=LAYOUT,
        shape=shape,
        rope_table=config["transformer_layer_config"],
        boundaries=boundaries or _boundaries(table, source),
        block_size=table.block_size,
        mask_token_id=table.mask_token_id,
        draft_vocab_size=table.draft_vocab_size,
        num_target_layers=None,
        sights=_sights(table, source),
    )


def _boundaries(table: _Table, source: Path) -> tuple[int, ...]:
    if table.aux_hidden_state_layer_ids is None:
        raise ModelError(
            f"{source} lacks aux_hidden_state_layer_ids; give the option boundaries=..."
        )
    return tuple(table.aux_hidden_state_layer_ids)


def _sights(table: _Table, source: Path) -> tuple[LayerSight, ...]:
    shape = table.transformer_layer_config
    kinds = shape.layer_types or [""] * shape.num_hidden_layers
    sliding = None
    if SLIDING in kinds:
        window = require_window(shape.sliding_window, source)
        sliding = LayerSight(not table.sliding_window_non_causal, window, is_anchored=True)
    return tuple(sliding if kind == SLIDING and sliding else LayerSight() for kind in kinds)
