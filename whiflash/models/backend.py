"""A pair that belongs together: how K/V are stored, and the attention that reads them."""

from __future__ import annotations

from typing import Protocol

import torch

from whiflash.models.attention import RaggedAttention
from whiflash.models.ragged import RaggedRows
from whiflash.models.sdpa import SdpaAttention
from whiflash.models.slab import CacheLayout, RowSlab, Slab


class AttentionBackend(Protocol):
    """Makes slabs, and an attention per forward that reads them."""

    @property
    def name(self) -> str: ...

    @property
    def layout(self) -> CacheLayout:
        """Of the slabs it makes, padding included."""

    def new_slab(self, num_tokens: int) -> Slab: ...

    def start(self, rows: RaggedRows) -> RaggedAttention: ...


class SdpaBackend:
    """The plain reference path: any dtype and device, not row-invariant."""

    name = "sdpa"

    def __init__(self, layout: CacheLayout) -> None:
        self.layout = layout

    def new_slab(self, num_tokens: int) -> RowSlab:
        return RowSlab(self.layout, num_tokens)

    def start(self, rows: RaggedRows) -> SdpaAttention:
        device: torch.device = self.layout.device
        return SdpaAttention(rows, device)
