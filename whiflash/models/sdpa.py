"""The plain reference: one masked attention per sequence, by torch's own operators."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from whiflash.models.attention import AttentionParams
from whiflash.models.ragged import RaggedRows, RowSpan
from whiflash.models.slab import RowSlab


class SdpaAttention:
    """`RaggedAttention` over `RowSlab` caches, any dtype and device. Not row-invariant."""

    def __init__(self, rows: RaggedRows, device: torch.device) -> None:
        self._rows = rows
        self._device = device
        self._masks: dict[tuple[int, int], torch.Tensor] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        out = query.new_zeros(query.shape[1], query.shape[0], value.shape[2])
        for index, span in enumerate(self._rows.spans):
            rows = slice(span.start, span.start + span.count)
            keys, values = _write(span, layer, key[:, rows], value[:, rows])
            mask = self._mask(index, params.window)
            out[rows] = _attend(query[:, rows], keys, values, mask, params).transpose(0, 1)
        return out

    def _mask(self, index: int, window: int) -> torch.Tensor:
        if (index, window) not in self._masks:
            mask = visible_keys(self._rows.spans[index], window)
            self._masks[index, window] = torch.from_numpy(mask).to(self._device)
        return self._masks[index, window]


def visible_keys(span: RowSpan, window: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """bool [count, committed + count]: the keys, by slot, that each row sees."""
    prefix = np.ones((span.count, span.committed), bool)
    mask = np.concatenate([prefix, span.ancestors()], axis=1)
    if window:
        row_positions = span.committed + span.depths
        key_positions = np.concatenate([np.arange(span.committed), row_positions])
        mask &= row_positions[:, None] - key_positions[None, :] < window
    return mask


def _write(
    span: RowSpan, layer: int, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    slab = span.cache.slab
    if not isinstance(slab, RowSlab):
        raise ValueError("SDPA reads row slabs only; take caches from this target's new_cache")
    end = span.committed + span.count
    slab.keys[layer][:, span.committed : end] = key
    slab.values[layer][:, span.committed : end] = value
    return slab.keys[layer][:, :end], slab.values[layer][:, :end]


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    params: AttentionParams,
) -> torch.Tensor:
    if params.softcap or params.sinks is not None:
        return _attend_eagerly(query, keys, values, mask, params)
    return functional.scaled_dot_product_attention(
        query[None],
        keys[None],
        values[None],
        mask,
        scale=params.scaling,
        enable_gqa=query.shape[0] != keys.shape[0],
    )[0]


def _attend_eagerly(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    params: AttentionParams,
) -> torch.Tensor:
    group = query.shape[0] // keys.shape[0]
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(wide) @ keys.repeat_interleave(group, 0).to(wide).transpose(1, 2)
    scores = scores * params.scaling
    if params.softcap:
        scores = params.softcap * torch.tanh(scores / params.softcap)
    scores = scores.masked_fill(~mask, -torch.inf)
    if params.sinks is not None:
        sinks = params.sinks.to(wide)[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat([scores, sinks], dim=2)
    odds = torch.softmax(scores, dim=2)[:, :, : keys.shape[1]]
    return (odds @ values.repeat_interleave(group, 0).to(wide)).to(query.dtype)
