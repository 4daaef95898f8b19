"""A small exact piece of a loaded model: one layer of each kind, few vocabulary rows, wide floats.

The load-time self-test compares our forward with the model's own on it: it has the real layers'
code, config and weights, but costs almost nothing whatever the size of the model.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from whiflash.core.errors import UnsupportedModelError

MIN_LAYERS = 2
MAX_WINDOW = 24
_HEAD_ROWS = 512


@dataclass(frozen=True, slots=True)
class ModelSlice:
    """model: a causal model with `token_ids` as its whole input vocabulary: its id i stands for
    token_ids[i] of the original. Float32 (float64 stays), evaluation mode."""

    model: PreTrainedModel
    token_ids: tuple[int, ...]

    def ids_of(self, text_ids: Sequence[int]) -> list[int]:
        """The slice's own ids of tokens of the original model."""
        index = {token: i for i, token in enumerate(self.token_ids)}
        return [index[token] for token in text_ids]


def cut(model: PreTrainedModel, text_ids: Sequence[int]) -> ModelSlice:
    """Cuts a slice that can read `text_ids`. The model itself is left as it is.

    Sliding windows are narrowed to MAX_WINDOW, so that a short text meets them. Raises
    UnsupportedModelError if the model has no plain list of layers, embedding and head.
    """
    layers, embedding, head = _parts(model)
    kept = _one_of_each_kind(model, layers)
    ids = sorted(set(text_ids))
    config = _config(model, kept, len(ids))
    memo: dict[int, object] = {id(model.config): config}
    memo[id(layers)] = nn.ModuleList(copy.deepcopy(layers[i], memo) for i in kept)
    memo[id(embedding)] = _rows(embedding, torch.tensor(ids))
    num_rows = len(torch.as_tensor(head.weight))
    memo[id(head)] = _rows(head, torch.arange(min(_HEAD_ROWS, num_rows)))
    small: PreTrainedModel = copy.deepcopy(model, memo)
    _renumber(memo[id(layers)])
    for module in small.modules():
        window = vars(module).get("sliding_window")
        if isinstance(window, int):
            vars(module)["sliding_window"] = min(window, MAX_WINDOW)
    wide = torch.float64 if model.dtype == torch.float64 else torch.float32
    small.to(dtype=wide)  # type: ignore[call-arg]
    small.eval()
    return ModelSlice(small, tuple(ids))


def _parts(model: PreTrainedModel) -> tuple[nn.ModuleList, nn.Module, nn.Module]:
    count = int(model.config.num_hidden_layers)
    lists = [
        module
        for module in model.base_model.children()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    embedding = model.get_input_embeddings()
    head = model.get_output_embeddings()
    if len(lists) != 1 or embedding is None or head is None:
        raise UnsupportedModelError(
            f"{model.config.model_type} is built unlike a plain decoder (one list of layers "
            "between an embedding and a head); it needs a runner of its own"
        )
    return lists[0], embedding, head


def _one_of_each_kind(model: PreTrainedModel, layers: nn.ModuleList) -> list[int]:
    """The first layer of each kind (attention type and module classes), two at least."""
    types = getattr(model.config, "layer_types", None) or [""] * len(layers)
    first: dict[object, int] = {}
    for index, layer in enumerate(layers):
        kind = (types[index], tuple(type(module).__name__ for module in layer.modules()))
        first.setdefault(kind, index)
    kept = set(first.values())
    kept.update(range(max(0, min(MIN_LAYERS - len(kept), len(layers) - 1) + 1)))
    return sorted(kept)


def _config(model: PreTrainedModel, kept: list[int], vocab_size: int) -> object:
    config = copy.deepcopy(model.config)
    for key in ("layer_types", "mlp_layer_types"):
        kinds = getattr(config, key, None)
        if kinds:
            setattr(config, key, [kinds[i] for i in kept])
    config.num_hidden_layers = len(kept)
    config.vocab_size = vocab_size
    if isinstance(getattr(config, "sliding_window", None), int):
        config.sliding_window = min(config.sliding_window, MAX_WINDOW)
    return config


def _rows(module: nn.Module, index: torch.Tensor) -> nn.Module:
    """The module with some rows of its weight (and bias) only; the rest of it is shared."""
    small = copy.copy(module)
    small._parameters = {
        name: None
        if value is None
        else nn.Parameter(value.detach()[index.to(value.device)].clone(), requires_grad=False)
        for name, value in module._parameters.items()
    }
    for name, value in (("num_embeddings", len(index)), ("out_features", len(index))):
        if hasattr(small, name):
            setattr(small, name, value)
    if hasattr(small, "padding_idx"):
        small.padding_idx = None  # type: ignore[assignment]
    return small


def _renumber(layers: object) -> None:
    assert isinstance(layers, nn.ModuleList)
    for index, layer in enumerate(layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = index  # type: ignore[assignment]
