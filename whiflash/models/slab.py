"""Memory of one sequence's K/V, for all layers: where each position's keys and values lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

BLOCK_TOKENS = 64


@dataclass(frozen=True, slots=True)
class LayerShape:
    """K/V of one layer and position: `num_heads` keys of `key_width` and values of
    `value_width` numbers (they differ for multi-head latent attention)."""

    num_heads: int
    key_width: int
    value_width: int

    @property
    def numbers_per_token(self) -> int:
        return self.num_heads * (self.key_width + self.value_width)


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Shapes of all layers, and how a number is stored."""

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        return sum(layer.numbers_per_token for layer in self.layers) * self.dtype.itemsize

    def num_blocks(self, num_tokens: int) -> int:
        """Blocks that a cache of `num_tokens` holds: a power of two, so that the answer does not
        depend on how the cache came to that length."""
        blocks = -(-max(num_tokens, 1) // BLOCK_TOKENS)
        return 1 << (blocks - 1).bit_length()

    def num_bytes(self, num_tokens: int) -> int:
        """Memory of a cache that holds `num_tokens`, growth included."""
        return self.num_blocks(num_tokens) * BLOCK_TOKENS * self.bytes_per_token


class Slab(Protocol):
    """Storage of `capacity` slots. Slot s of a layer holds the K and V of one position."""

    @property
    def capacity(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...

    def grow(self, num_tokens: int) -> None:
        """Make room for `num_tokens` slots at least; what is written stays."""

    def move(self, sources: Sequence[int], first: int) -> None:
        """Copy slot sources[i] to first + i, bit by bit, in order (sources ascending, each at or
        behind its destination)."""

    def clone(self, length: int) -> Slab:
        """An independent slab with the first `length` slots."""

    def release(self) -> None: ...


class RowSlab:
    """K [heads, capacity, key_width] and V [heads, capacity, value_width] per layer: what SDPA
    reads without a copy, on any device."""

    def __init__(self, layout: CacheLayout, num_tokens: int) -> None:
        self.layout = layout
        self.capacity = layout.num_blocks(num_tokens) * BLOCK_TOKENS
        self.keys = [self._empty(s.num_heads, s.key_width) for s in layout.layers]
        self.values = [self._empty(s.num_heads, s.value_width) for s in layout.layers]

    def _empty(self, num_heads: int, width: int) -> torch.Tensor:
        shape = (num_heads, self.capacity, width)
        return torch.zeros(shape, dtype=self.layout.dtype, device=self.layout.device)

    @property
    def num_bytes(self) -> int:
        return sum(t.nbytes for t in (*self.keys, *self.values))

    def grow(self, num_tokens: int) -> None:
        if num_tokens > self.capacity:
            self._take(RowSlab(self.layout, num_tokens), self.capacity)

    def _take(self, larger: RowSlab, length: int) -> None:
        _copy_prefix(self, larger, length)
        self.capacity, self.keys, self.values = larger.capacity, larger.keys, larger.values

    def move(self, sources: Sequence[int], first: int) -> None:
        index = torch.tensor(sources, device=self.layout.device)
        for tensor in (*self.keys, *self.values):
            tensor[:, first : first + len(sources)] = tensor[:, index]

    def clone(self, length: int) -> RowSlab:
        twin = RowSlab(self.layout, length)
        _copy_prefix(self, twin, length)
        return twin

    def release(self) -> None:
        self.capacity, self.keys, self.values = 0, [], []

    def rows(self, layer: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A layer's K and V, [heads, length, width]."""
        return self.keys[layer][:, :length], self.values[layer][:, :length]


def _copy_prefix(source: RowSlab, target: RowSlab, length: int) -> None:
    pairs = zip((*source.keys, *source.values), (*target.keys, *target.values), strict=True)
    for old, new in pairs:
        new[:, :length] = old[:, :length]
