"""The layout of z-lab's checkpoints, which SpecForge writes as well (facts: z-lab/dflash)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from whiflash.core.errors import ModelError, UnsupportedModelError
from whiflash.drafters.dflash.config import (
    MOST_SLOTS,
    SLIDING,
    VARIANTS,
    DecoderTable,
    DFlashConfig,
    default_boundaries,
    require_layer_types,
    require_plain_method,
    require_window,
)
from whiflash.drafters.dflash.sight import LayerSight
from whiflash.models.draft.boundaries import from_layer_outputs
from whiflash.models.draft.config import Size, parse
from whiflash.models.draft.lossless import require_lossless

LAYOUT = "z-lab"
ARCHITECTURE = "DFlashDraftModel"
DEFAULT_BLOCK_SIZE = 16
_OTHERS = {
    "DFlash2DraftModel": "DFlash 2",
    "DSparkDraftModel": "DSpark",
    "DominoDraftModel": "Domino",
}


class _Method(BaseModel):
    """`dflash_config`."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    mask_token_id: int | None = Field(default=None, ge=0)
    target_layer_ids: list[int] | None = None
    block_size: int | None = Field(default=None, ge=2, le=MOST_SLOTS)
    causal: bool | None = None
    use_swa: bool = False
    swa_window_size: Size | None = None
    projector_type: str | None = None
    mask_token: str | None = None


class _Table(DecoderTable):
    """config.json."""

    architectures: list[str]
    dflash_config: _Method = _Method()
    block_size: int | None = Field(default=None, ge=2, le=MOST_SLOTS)
    mask_token_id: int | None = Field(default=None, ge=0)
    is_causal: bool | None = None
    num_target_layers: int | None = Field(default=None, gt=0)


def read_zlab(
    config: Mapping[str, Any], source: Path, boundaries: tuple[int, ...] | None = None
) -> DFlashConfig:
    """`boundaries`: the user's own, instead of the checkpoint's. Raises ModelError, or
    UnsupportedModelError naming the variant."""
    _require_architecture(config, source)
    table = parse(_Table, config, source)
    method = table.dflash_config
    require_lossless(config, source)
    _require_known(method, config, source)
    require_layer_types(table, source, all_slide=method.use_swa)
    ids = (method.mask_token_id, table.mask_token_id)
    return DFlashConfig(
        layout=LAYOUT,
        shape=table,
        rope_table=config,
        boundaries=boundaries or _boundaries(table, source),
        block_size=table.block_size or method.block_size or DEFAULT_BLOCK_SIZE,
        mask_token_id=next((found for found in ids if found is not None), None),
        draft_vocab_size=table.vocab_size,
        num_target_layers=table.num_target_layers,
        sights=_sights(table, source),
    )


def _require_architecture(config: Mapping[str, Any], source: Path) -> None:
    names = config.get("architectures") or ["(none)"]
    name = str(names[0] if isinstance(names, list) else names)
    if name == ARCHITECTURE:
        return
    what = f" ({_OTHERS[name]})" if name in _OTHERS else ""
    raise UnsupportedModelError(
        f"{source} holds a {name}{what}; the dflash drafter runs {ARCHITECTURE} only"
    )


def _require_known(method: _Method, config: Mapping[str, Any], source: Path) -> None:
    """No variant, at the top or in `dflash_config`, and nothing there whose meaning is unknown."""
    require_plain_method(config, source)
    require_plain_method(dict(method), source)
    settings = {key for key, value in (method.model_extra or {}).items() if value is not None}
    if settings - set(VARIANTS):
        raise UnsupportedModelError(
            f"{source}: dflash_config has the setting {min(settings - set(VARIANTS))!r}, which "
            "this version does not know; ignoring it could ruin every draft"
        )


def _boundaries(table: _Table, source: Path) -> tuple[int, ...]:
    layers = table.dflash_config.target_layer_ids
    if layers is not None:
        return from_layer_outputs(layers)
    if table.num_target_layers is None:
        raise ModelError(
            f"{source}: neither target_layer_ids nor num_target_layers says where the target is "
            "tapped; give the option boundaries=..."
        )
    return default_boundaries(table.num_target_layers, table.num_hidden_layers)


def _sights(table: _Table, source: Path) -> tuple[LayerSight, ...]:
    """In order of precedence: is_causal for all, dflash_config.causal for all, else a layer is
    causal exactly if it slides. use_swa without layer_types makes all slide, none causal."""
    method, count = table.dflash_config, table.num_hidden_layers
    is_forced = method.use_swa and table.layer_types is None
    kinds = table.layer_types or [SLIDING if is_forced else ""] * count
    stated = table.is_causal if table.is_causal is not None else method.causal
    sights = []
    for kind in kinds:
        is_sliding = kind == SLIDING
        is_causal = stated if stated is not None else is_sliding and not is_forced
        window = table.sliding_window or method.swa_window_size
        sights.append(LayerSight(is_causal, require_window(window, source) if is_sliding else None))
    return tuple(sights)
