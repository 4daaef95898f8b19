"""The slab that the attention kernel reads: blocks of 64 positions, all layers in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from whiflash.models.slab import BLOCK_TOKENS, CacheLayout, LayerShape
from whiflash.models.vectors import LANES


def padded(layout: CacheLayout) -> CacheLayout:
    """The layout with value widths rounded up to whole vectors."""
    return replace(layout, layers=tuple(_pad(layer) for layer in layout.layers))


def _pad(layer: LayerShape) -> LayerShape:
    return replace(layer, value_width=-(-layer.value_width // LANES) * LANES)


class BlockSlab:
    """One buffer of blocks; a block holds, per layer and head, K [key width, 64] transposed and
    V [64, value width]. So growing and cloning copy a prefix of the buffer and nothing else.

    `layout` must be `padded`.
    """

    def __init__(self, layout: CacheLayout, num_tokens: int) -> None:
        self.layout = layout
        self._numbers = block_numbers(layout)
        self._buffer = self._new(layout.num_blocks(num_tokens))

    def _new(self, num_blocks: int) -> torch.Tensor:
        # Zeros, not empty: what was never written is multiplied by a weight of zero.
        return torch.zeros(num_blocks, self._numbers, dtype=self.layout.dtype)

    @property
    def address(self) -> int:
        return self._buffer.data_ptr()

    @property
    def capacity(self) -> int:
        return self._buffer.shape[0] * BLOCK_TOKENS

    @property
    def num_bytes(self) -> int:
        return self._buffer.nbytes

    def grow(self, num_tokens: int) -> None:
        if num_tokens > self.capacity:
            larger = self._new(self.layout.num_blocks(num_tokens))
            larger[: self._buffer.shape[0]] = self._buffer
            self._buffer = larger

    def move(self, sources: Sequence[int], first: int) -> None:
        for step, source in enumerate(sources):
            old_block, old = divmod(source, BLOCK_TOKENS)
            new_block, new = divmod(first + step, BLOCK_TOKENS)
            pairs = zip(self.block(old_block), self.block(new_block), strict=True)
            for (old_keys, old_values), (new_keys, new_values) in pairs:
                new_keys[:, :, new] = old_keys[:, :, old]
                new_values[:, new] = old_values[:, old]

    def clone(self, length: int) -> BlockSlab:
        twin = BlockSlab(self.layout, length)
        used = -(-length // BLOCK_TOKENS)
        twin._buffer[:used] = self._buffer[:used]
        return twin

    def release(self) -> None:
        self._buffer = self._new(0)

    def block(self, index: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Views of one block, per layer: K [heads, key width, 64], V [heads, 64, value width]."""
        return _views(self._buffer[index], self.layout)

    def rows(self, layer: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of a layer's K and V, [heads, length, width], for tests and tools."""
        blocks = [self.block(index)[layer] for index in range(self._buffer.shape[0])]
        keys = torch.cat([k.transpose(1, 2) for k, _ in blocks], dim=1)
        values = torch.cat([v for _, v in blocks], dim=1)
        return keys[:, :length], values[:, :length]


def _views(block: torch.Tensor, layout: CacheLayout) -> list[tuple[torch.Tensor, torch.Tensor]]:
    views, start = [], 0
    for shape in layout.layers:
        width = shape.key_width + shape.value_width
        size = shape.num_heads * width * BLOCK_TOKENS
        heads = block[start : start + size].view(shape.num_heads, width * BLOCK_TOKENS)
        split = shape.key_width * BLOCK_TOKENS
        keys = heads[:, :split].view(shape.num_heads, shape.key_width, BLOCK_TOKENS)
        values = heads[:, split:].view(shape.num_heads, BLOCK_TOKENS, shape.value_width)
        views.append((keys, values))
        start += size
    return views


def block_numbers(layout: CacheLayout) -> int:
    """Numbers from one block to the next."""
    return BLOCK_TOKENS * sum(shape.numbers_per_token for shape in layout.layers)


def layer_offsets(layout: CacheLayout) -> list[int]:
    """Numbers from a block's start to each layer's part."""
    sizes = [BLOCK_TOKENS * shape.numbers_per_token for shape in layout.layers]
    return [int(total) for total in np.cumsum([0, *sizes[:-1]])]
