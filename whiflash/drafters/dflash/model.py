"""The DFlash network: context as injected K/V, a block of masks filled in one pass.

Reference: z-lab/dflash `dflash/model.py` (commit 44947fb), arXiv 2602.06036. Module names are the
tensor names of its checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from whiflash.core.fuse import FuseWeights
from whiflash.drafters.dflash.config import DFlashConfig
from whiflash.drafters.dflash.sight import LayerSight
from whiflash.models.draft.cache import DraftCache
from whiflash.models.draft.config import DecoderShape
from whiflash.models.draft.fuse import dense_weight
from whiflash.models.draft.layers import GatedMLP, Projections, RMSNorm, attend
from whiflash.models.draft.rope import Rope, Turns


class DFlashLayer(nn.Module):
    """A Qwen3 layer whose keys are the context's and the block's own."""

    def __init__(self, shape: DecoderShape, sight: LayerSight) -> None:
        super().__init__()
        width, eps = shape.hidden_size, shape.rms_norm_eps
        self.input_layernorm = RMSNorm(width, eps)
        self.self_attn = Projections(shape, width, has_head_norms=True)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.mlp = GatedMLP(shape)
        self.sight = sight

    def context(self, fused: torch.Tensor, turns: Turns) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of context positions, [n, key heads, width]. The fused tap goes in as it is:
        the layer's input norm is for the block alone."""
        return self.self_attn.keys(fused, turns), self.self_attn.values(fused)

    def forward(
        self, hidden: torch.Tensor, turns: Turns, number: int, caches: Sequence[DraftCache]
    ) -> torch.Tensor:
        """[blocks * slots, h] -> the same. The blocks' K/V are laid behind each cache's kept
        positions, as scratch."""
        x = self.input_layernorm(hidden)
        attention = self.self_attn
        query, keys, values = (
            attention.queries(x, turns),
            attention.keys(x, turns),
            attention.values(x),
        )
        slots = len(hidden) // len(caches)
        attended = []
        for row, cache in enumerate(caches):
            own = slice(row * slots, (row + 1) * slots)
            cache.write(number, keys[own], values[own])
            attended.append(self._attend(query[own], number, cache))
        hidden = hidden + attention.output(torch.cat(attended))
        out: torch.Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out

    def _attend(self, query: torch.Tensor, number: int, cache: DraftCache) -> torch.Tensor:
        slots, root = len(query), cache.end
        keys, values = cache.read(number, slots)
        first = max(self.sight.first_visible(root), cache.start)
        mask = self.sight.mask(first, root, slots)
        return attend(
            query,
            keys[:, first - cache.start :],
            values[:, first - cache.start :],
            None if mask is None else torch.from_numpy(mask).to(query.device),
            self.self_attn.scale,
        )


class DFlashModel(nn.Module):
    """Fuses taps, makes context K/V, fills blocks. It has neither embedding nor head."""

    def __init__(self, config: DFlashConfig, tap_width: int) -> None:
        super().__init__()
        shape = config.shape
        width, eps = shape.hidden_size, shape.rms_norm_eps
        self.fc = nn.Linear(len(config.boundaries) * tap_width, width, bias=False)
        self.hidden_norm = RMSNorm(width, eps)
        self.layers = nn.ModuleList(DFlashLayer(shape, sight) for sight in config.sights)
        self.norm = RMSNorm(width, eps)

    def fuse(self, taps: torch.Tensor) -> torch.Tensor:
        """[n, taps * target width] -> [n, h], what every layer projects to context K/V."""
        fused: torch.Tensor = self.hidden_norm(self.fc(taps))
        return fused

    def fuse_weights(self) -> FuseWeights:
        """All that `fuse` is made of."""
        norm = self.hidden_norm
        return FuseWeights(dense_weight(self.fc), norm.eps, output_norm=norm.weight.detach())

    def absorb(
        self,
        fused: torch.Tensor,
        counts: Sequence[int],
        caches: Sequence[DraftCache],
        rope: Rope,
    ) -> None:
        """Appends context K/V: fused [sum of counts, h] holds each cache's next positions."""
        turns = rope.turns(_positions(caches, counts).to(fused.device))
        for cache, count in zip(caches, counts, strict=True):
            cache.reserve(count)
        for number, layer in enumerate(self._layers()):
            keys, values = layer.context(fused, turns)
            parts = zip(caches, keys.split(list(counts)), values.split(list(counts)), strict=True)
            for cache, own_keys, own_values in parts:
                cache.write(number, own_keys, own_values)
        for cache, count in zip(caches, counts, strict=True):
            cache.keep(count)

    def fill(
        self, embedded: torch.Tensor, caches: Sequence[DraftCache], rope: Rope
    ) -> torch.Tensor:
        """Hidden states of blocks whose roots sit right behind each cache's kept positions.

        embedded: [blocks * slots, h], the rows of root and masks. Returns the same shape, after
        the final norm. What the caches keep does not change.
        """
        slots = len(embedded) // len(caches)
        turns = rope.turns(_positions(caches, [slots] * len(caches)).to(embedded.device))
        for cache in caches:
            cache.reserve(slots)
        hidden = embedded
        for number, layer in enumerate(self._layers()):
            hidden = layer(hidden, turns, number, caches)
        out: torch.Tensor = self.norm(hidden)
        return out

    def _layers(self) -> Iterator[DFlashLayer]:
        for layer in self.layers:
            assert isinstance(layer, DFlashLayer)
            yield layer


def _positions(caches: Sequence[DraftCache], counts: Sequence[int]) -> torch.Tensor:
    """int64, the next `counts` positions behind each cache's kept ones."""
    pairs = zip(caches, counts, strict=True)
    return torch.cat([torch.arange(cache.end, cache.end + count) for cache, count in pairs])
