"""Calls a transformers model on one ragged batch: no mask, no cache object, head on asked rows."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import MoeModelOutputWithPast

from whiflash.core.protocols import ForwardSegment
from whiflash.models.attention import ATTENTION_NAME, AttentionParams, RaggedAttention
from whiflash.models.cache import SlabCache
from whiflash.models.direct import call_children_directly
from whiflash.models.linear import PackedLinear, cheapest_rows
from whiflash.models.ragged import RaggedRows
from whiflash.models.sdpa import SdpaAttention
from whiflash.models.slab import CacheLayout, LayerShape, RowSlab
from whiflash.models.taps import TapCapture

Body = Callable[[torch.Tensor, torch.Tensor, RaggedAttention, TapCapture], torch.Tensor]
Head = Callable[[torch.Tensor], torch.Tensor]
_PROBE_IDS = (1, 5, 3, 2, 7, 4, 6, 0)
_NO_TAPS = TapCapture(())


class ModelRunner:
    """The model's own layers, called as directly as is equal to the model's own forward.

    The model's attention is switched to ours and its mode to evaluation. `is_bare` and
    `has_plain_head` tell which shortcuts the load-time check allowed; `cheapest_rows` is the row
    count that small forwards should be padded to.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        model.eval().requires_grad_(False)
        model.set_attn_implementation(ATTENTION_NAME)
        allow_wide_experts(model)
        self.model = model
        self.layout = _probe_layout(model)
        with torch.inference_mode():
            self._body, self.is_bare = _choose_body(model, self.layout)
            self._head, self.has_plain_head = _choose_head(model, self.layout)
            self.cheapest_rows = _cheapest_rows(model)

    @property
    def device(self) -> torch.device:
        return self.layout.device

    def hidden(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        ragged: RaggedAttention,
        taps: TapCapture = _NO_TAPS,
    ) -> torch.Tensor:
        """int64 [T], int64 [T] -> [T, h], after the final norm; `taps` holds what it asks for."""
        return self._body(token_ids[None], positions[None], ragged, taps)[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[R, h] -> [R, V]."""
        return self._head(hidden)


def allow_wide_experts(model: PreTrainedModel) -> None:
    """In float64, mixtures of experts must run expert by expert: torch's grouped matrix product
    has no such kernel."""
    if model.dtype == torch.float64 and model._can_set_experts_implementation():
        model.set_experts_implementation("eager")


def _cheapest_rows(model: PreTrainedModel) -> int:
    linears = [module for module in model.base_model.modules() if type(module) is PackedLinear]
    return cheapest_rows(linears) if linears else 1


class _ShapeProbe:
    """A `RaggedAttention` that only notes the shapes and lets each row see its own value."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        _params: AttentionParams,
    ) -> torch.Tensor:
        self.shapes[layer] = LayerShape(key.shape[0], key.shape[2], value.shape[2])
        return value.repeat_interleave(query.shape[0] // value.shape[0], 0).transpose(0, 1)


def _probe_layout(model: PreTrainedModel) -> CacheLayout:
    probe = _ShapeProbe()
    with torch.inference_mode():
        _own_body(model)(*_probe_rows(model), probe, _NO_TAPS)
    layers = tuple(probe.shapes[layer] for layer in sorted(probe.shapes))
    return CacheLayout(layers, model.dtype, model.device)


def _probe_rows(model: PreTrainedModel) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.tensor([_PROBE_IDS], device=model.device)
    return ids, torch.arange(ids.shape[1], device=model.device)[None]


def _probe_attention(layout: CacheLayout) -> SdpaAttention:
    cache = SlabCache(RowSlab(layout, len(_PROBE_IDS)))
    rows = RaggedRows.pack([ForwardSegment(cache, np.array(_PROBE_IDS))])
    return SdpaAttention(rows, layout.device)


def _own_body(model: PreTrainedModel) -> Body:
    inner = model.base_model

    def run(
        ids: torch.Tensor, positions: torch.Tensor, ragged: RaggedAttention, taps: TapCapture
    ) -> torch.Tensor:
        with taps.hooked(inner):
            output = inner(input_ids=ids, position_ids=positions, use_cache=False, ragged=ragged)
        hidden: torch.Tensor = output.last_hidden_state
        return hidden

    return run


def _bare_body(model: PreTrainedModel) -> Body:
    """embed -> layers -> norm. Raises AttributeError where the model is built differently."""
    inner: Any = model.base_model
    embed, norm, rotary = inner.embed_tokens.forward, inner.norm.forward, inner.rotary_emb.forward
    types = list(getattr(model.config, "layer_types", None) or [""] * len(inner.layers))
    is_typed = "layer_type" in inspect.signature(rotary).parameters
    layers = [
        (layer.forward, kind if is_typed else "")
        for layer, kind in zip(inner.layers, types, strict=True)
    ]
    kinds = sorted({kind for _, kind in layers})

    def run(
        ids: torch.Tensor, positions: torch.Tensor, ragged: RaggedAttention, taps: TapCapture
    ) -> torch.Tensor:
        hidden: torch.Tensor = embed(ids)
        turns = {kind: rotary(hidden, positions, *([kind] if kind else [])) for kind in kinds}
        for number, (forward, kind) in enumerate(layers):
            taps.enter(number, hidden)
            hidden = forward(
                hidden,
                attention_mask=None,
                position_ids=positions,
                use_cache=False,
                position_embeddings=turns[kind],
                ragged=ragged,
            )
        taps.enter(len(layers), hidden)
        hidden = norm(hidden)
        return hidden

    return run


def _choose_body(model: PreTrainedModel, layout: CacheLayout) -> tuple[Body, bool]:
    own = _own_body(model)
    rows = _probe_rows(model)
    expected = own(*rows, _probe_attention(layout), _NO_TAPS)

    def is_equal() -> bool:
        try:
            found = _bare_body(model)(*rows, _probe_attention(layout), _NO_TAPS)
        except (AttributeError, TypeError, ValueError, KeyError):
            return False
        return torch.equal(found, expected)

    if not is_equal():
        return own, False
    undo = call_children_directly(model.base_model.get_submodule("layers"))
    if not is_equal():
        undo()
    return _bare_body(model), True


class _GivenHidden(nn.Module):
    """Stands where the inner model was: hands over the hidden states it was given."""

    hidden: torch.Tensor

    def forward(self, *_args: object, **_options: object) -> MoeModelOutputWithPast:
        return MoeModelOutputWithPast(last_hidden_state=self.hidden)


def _own_head(model: PreTrainedModel) -> Head:
    """The causal model's own forward around given hidden states: head, soft cap and all."""
    shell = copy.copy(model)
    shell._modules = dict(model._modules)
    given = _GivenHidden()
    shell._modules[model.base_model_prefix] = given
    ids = torch.zeros(1, 1, dtype=torch.long, device=model.device)

    def run(hidden: torch.Tensor) -> torch.Tensor:
        given.hidden = hidden[None]
        logits: torch.Tensor = shell(input_ids=ids, use_cache=False).logits[0]
        return logits

    return run


def _choose_head(model: PreTrainedModel, layout: CacheLayout) -> tuple[Head, bool]:
    own = _own_head(model)
    plain: Head = model.get_output_embeddings().forward
    hidden = _own_body(model)(*_probe_rows(model), _probe_attention(layout), _NO_TAPS)[0]
    if torch.equal(plain(hidden), own(hidden)):
        return plain, True
    return own, False
