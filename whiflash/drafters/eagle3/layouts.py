"""EAGLE-3 checkpoints of three origins, read into one form. What is not supported has a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from whiflash.core.errors import ModelError, UnsupportedModelError
from whiflash.drafters.eagle3.model import Eagle3Variant
from whiflash.models.draft.boundaries import from_layer_outputs
from whiflash.models.draft.checkpoint import DraftCheckpoint, TensorBox
from whiflash.models.draft.config import (
    FULL_ATTENTION,
    SCALES,
    DecoderShape,
    Size,
    parse,
    require_none_of,
    require_plain,
)
from whiflash.models.draft.lossless import require_lossless

SAFEAILAB, SPECFORGE, SPECULATORS = "SafeAILab", "SpecForge", "speculators"
_ARCHITECTURES = ("LlamaForCausalLM", "LlamaForCausalLMEagle3")
_BODY_TYPES = {"llama": False, "qwen3": True}  # model_type -> has head norms
_PARALLEL_KEYS = ("ptd_token_id", "mask_hidden", "parallel_drafting", "num_parallel_tokens")
_MIN_DEFAULT_LAYERS = 7


class _TapKeys(BaseModel):
    """Keys that SpecForge writes at the top or into `eagle_config`."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    eagle_aux_hidden_state_layer_ids: list[int] | None = None
    use_aux_hidden_state: bool | None = None


class _HeadKeys(_TapKeys):
    """Keys of the head itself, the same in all layouts."""

    architectures: list[str] | None = None
    eagle_config: _TapKeys | None = None
    draft_vocab_size: Size | None = None
    target_hidden_size: Size | None = None
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool | None = None


@dataclass(frozen=True, slots=True)
class Eagle3Layout:
    """One checkpoint in our form.

    rope: the table that the rope parameters are in. boundaries None: the default ones.
    body: tensors by `Eagle3Body`'s parameter names. embedding None: the target's.
    """

    origin: str
    variant: Eagle3Variant
    vocab_size: int
    rope: Mapping[str, Any]
    boundaries: tuple[int, ...] | None
    body: Mapping[str, torch.Tensor]
    d2t: torch.Tensor | None
    t2d: torch.Tensor | None
    embedding: torch.Tensor | None
    notes: tuple[str, ...]


def read_layout(checkpoint: DraftCheckpoint, num_taps: int | None, tap_width: int) -> Eagle3Layout:
    """The checkpoint's layout, recognised by its config. num_taps: of the option `boundaries`, if
    given; tap_width: the target's hidden size. Raises UnsupportedModelError, naming the variant,
    or ModelError."""
    config, folder = checkpoint.config, checkpoint.folder
    keys = parse(_HeadKeys, config, folder)
    _refuse_parallel(checkpoint, keys)
    require_lossless(config, folder)
    read = _speculators if "speculators_model_type" in config else _plain
    return read(checkpoint, keys, num_taps, tap_width)


def _refuse_parallel(checkpoint: DraftCheckpoint, keys: _HeadKeys) -> None:
    config = checkpoint.config
    kinds = [*(keys.architectures or ()), str(config.get("speculators_model_type", ""))]
    is_named = any("peagle" in kind.lower().replace("-", "").replace("_", "") for kind in kinds)
    has_key = any(config.get(key) not in (None, False) for key in _PARALLEL_KEYS)
    if is_named or has_key or "mask_hidden" in checkpoint.tensors:
        raise UnsupportedModelError(
            f"{checkpoint.folder} is a P-EAGLE drafter (parallel EAGLE), which is not supported; "
            "take an EAGLE-3 checkpoint"
        )


def _speculators(
    checkpoint: DraftCheckpoint, keys: _HeadKeys, num_taps: int | None, tap_width: int
) -> Eagle3Layout:
    config, folder = checkpoint.config, checkpoint.folder
    kind = config["speculators_model_type"]
    if kind != "eagle3":
        raise UnsupportedModelError(f"{folder} is a speculators {kind!r} drafter, not an 'eagle3'")
    inner = config.get("transformer_layer_config")
    if not isinstance(inner, dict):
        raise ModelError(f"{folder / 'config.json'} lacks transformer_layer_config")
    notes = []
    if "norm_before_residual" not in config:
        notes.append("norm_before_residual is not stated: taken as false")
    ids = keys.eagle_aux_hidden_state_layer_ids
    return _layout(
        checkpoint,
        SPECULATORS,
        inner,
        keys,
        None if ids is None else tuple(ids),
        num_taps,
        tap_width,
        feeds_normed=bool(keys.norm_output),
        notes=tuple(notes),
    )


def _plain(
    checkpoint: DraftCheckpoint, keys: _HeadKeys, num_taps: int | None, tap_width: int
) -> Eagle3Layout:
    config, folder = checkpoint.config, checkpoint.folder
    names = keys.architectures or []
    if len(names) != 1 or names[0] not in _ARCHITECTURES:
        raise UnsupportedModelError(
            f"{folder} states the architecture {names}; EAGLE-3 heads are one of: "
            f"{', '.join(_ARCHITECTURES)}, or speculators' eagle3"
        )
    if keys.norm_output is False:
        raise UnsupportedModelError(
            f"{folder}: norm_output=false (no norm before lm_head) is not supported"
        )
    nested = keys.eagle_config or keys
    if False in (nested.use_aux_hidden_state, keys.use_aux_hidden_state):
        raise UnsupportedModelError(
            f"{folder}: use_aux_hidden_state=false is an EAGLE-1 head, which is not supported"
        )
    ids = nested.eagle_aux_hidden_state_layer_ids or keys.eagle_aux_hidden_state_layer_ids
    boundaries = None if ids is None else tuple(ids)
    # Both numberings are in use; one that starts with layer 1 counts layers' outputs (SGLang PR
    # 25454): the default taps are boundaries 2, n // 2, n - 3.
    if boundaries and boundaries[0] == 1:
        boundaries = from_layer_outputs(boundaries)
    marks = ("eagle_config", "fc_norm", "norm_output", "target_hidden_size")
    origin = SPECFORGE if any(key in config for key in marks) else SAFEAILAB
    return _layout(
        checkpoint, origin, config, keys, boundaries, num_taps, tap_width,
        feeds_normed=False, notes=(),
    )  # fmt: skip


def _layout(
    checkpoint: DraftCheckpoint,
    origin: str,
    body_config: Mapping[str, Any],
    keys: _HeadKeys,
    boundaries: tuple[int, ...] | None,
    num_taps: int | None,
    tap_width: int,
    *,
    feeds_normed: bool,
    notes: tuple[str, ...],
) -> Eagle3Layout:
    folder = checkpoint.folder
    shape = parse(DecoderShape, body_config, folder)
    require_plain(shape, folder)
    require_none_of(SCALES, body_config, folder)
    if shape.use_sliding_window or set(shape.layer_types or ()) - {FULL_ATTENTION}:
        raise UnsupportedModelError(
            f"{folder}: sliding or other windowed attention is not supported; EAGLE-3 layers here "
            "see all positions"
        )
    if keys.norm_before_fc and keys.fc_norm:
        raise ModelError(f"{folder}: norm_before_fc and fc_norm exclude each other")
    if (keys.target_hidden_size or tap_width) != tap_width:
        raise ModelError(
            f"{folder} reads taps of {keys.target_hidden_size} numbers, the target's have "
            f"{tap_width}; take the target it was made for"
        )
    variant = Eagle3Variant(
        shape=shape,
        num_taps=num_taps or len(boundaries or (0, 0, 0)),
        tap_width=tap_width,
        draft_vocab_size=keys.draft_vocab_size or shape.vocab_size,
        norm_before_fc=keys.norm_before_fc,
        has_fc_norms=keys.fc_norm,
        norm_before_residual=keys.norm_before_residual,
        feeds_normed=feeds_normed,
        has_head_norms=_has_head_norms(body_config, checkpoint),
    )
    box = checkpoint.box()
    d2t, t2d = box.take_optional("d2t"), box.take_optional("t2d")
    embedding = box.take_optional("embed_tokens.weight", (shape.vocab_size, shape.hidden_size))
    body = _body(box, origin)
    return Eagle3Layout(
        origin, variant, shape.vocab_size, body_config, boundaries, body, d2t, t2d, embedding, notes
    )


def _has_head_norms(config: Mapping[str, Any], checkpoint: DraftCheckpoint) -> bool:
    kind = str(config.get("model_type") or "llama")
    if kind not in _BODY_TYPES:
        raise UnsupportedModelError(
            f"{checkpoint.folder}: EAGLE-3 layers of type {kind!r} are not supported; supported "
            f"are {', '.join(_BODY_TYPES)}"
        )
    return _BODY_TYPES[kind]


def _body(box: TensorBox, origin: str) -> dict[str, torch.Tensor]:
    """All other tensors, `midlayer.` called `layers.0.` as in speculators."""
    rest = box.take_rest()
    if origin == SPECULATORS:
        return rest
    return {
        f"layers.0.{name.removeprefix('midlayer.')}" if name.startswith("midlayer.") else name: t
        for name, t in rest.items()
    }


def default_boundaries(num_layers: int, source: object) -> tuple[int, ...]:
    """2, n // 2, n - 3: what the reference taps. Raises ModelError where two of them coincide."""
    if num_layers < _MIN_DEFAULT_LAYERS:
        raise ModelError(
            f"{source} names no layers to tap, and the default ones need a target of at least "
            f"{_MIN_DEFAULT_LAYERS} layers, not {num_layers}; give the option boundaries=..."
        )
    return 2, num_layers // 2, num_layers - 3
