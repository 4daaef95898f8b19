"""Which keys the rows of one EAGLE-3 call see: positions absorbed, the last one, a tree's level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from whiflash.models.draft.cache import DraftCache
from whiflash.models.draft.layers import attend

Visible = npt.NDArray[np.bool_]


class AbsorbedRows:
    """New positions of several sequences, each behind its own kept ones, causal."""

    is_stored = False

    def __init__(self, caches: Sequence[DraftCache], counts: Sequence[int]) -> None:
        self._caches, self._counts = caches, counts
        for cache, count in zip(caches, counts, strict=True):
            cache.reserve(count)

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        for cache, rows in self._spans():
            cache.write(layer, keys[rows], values[rows])

    def attend(self, layer: int, query: torch.Tensor, scale: float) -> torch.Tensor:
        """Only a head of several layers asks."""
        outs = []
        for (cache, rows), count in zip(self._spans(), self._counts, strict=True):
            keys, values = cache.read(layer, count)
            mask = torch.ones(count, cache.length + count, dtype=torch.bool, device=query.device)
            mask = mask.tril(cache.length)
            outs.append(attend(query[rows], keys, values, mask, scale))
        return torch.cat(outs)

    def keep(self) -> None:
        """What was written is absorbed."""
        for cache, count in zip(self._caches, self._counts, strict=True):
            cache.keep(count)

    def _spans(self) -> Iterator[tuple[DraftCache, slice]]:
        first = 0
        for cache, count in zip(self._caches, self._counts, strict=True):
            yield cache, slice(first, first + count)
            first += count


class LastRows:
    """The last kept position of each sequence, run again in full: its K/V are there."""

    is_stored = True

    def __init__(self, caches: Sequence[DraftCache]) -> None:
        self._caches = caches

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:  # noqa: ARG002
        raise AssertionError("kept K/V are not written again")

    def attend(self, layer: int, query: torch.Tensor, scale: float) -> torch.Tensor:
        outs = [
            attend(query[row : row + 1], *cache.read(layer), None, scale)
            for row, cache in enumerate(self._caches)
        ]
        return torch.cat(outs)


class BeamRows:
    """A level of each sequence's tree: a row sees all kept positions, its ancestors and itself.

    seen: per sequence bool [w, t], which of the t scratch rows (the level's own last) a row sees.
    """

    is_stored = False

    def __init__(self, caches: Sequence[DraftCache], seen: Sequence[Visible]) -> None:
        self._caches, self._seen = caches, seen
        self._masks: list[torch.Tensor | None] = []
        for cache, visible in zip(caches, seen, strict=True):
            cache.reserve(visible.shape[1])
            self._masks.append(_mask(cache, visible))

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        first = 0
        for cache, visible in zip(self._caches, self._seen, strict=True):
            width, total = visible.shape
            rows = slice(first, first + width)
            cache.write(layer, keys[rows], values[rows], total - width)
            first += width

    def attend(self, layer: int, query: torch.Tensor, scale: float) -> torch.Tensor:
        outs, first = [], 0
        for cache, visible, mask in zip(self._caches, self._seen, self._masks, strict=True):
            width, total = visible.shape
            keys, values = cache.read(layer, total)
            outs.append(attend(query[first : first + width], keys, values, mask, scale))
            first += width
        return torch.cat(outs)


def _mask(cache: DraftCache, visible: Visible) -> torch.Tensor | None:
    if visible.all():
        return None
    kept = np.ones((len(visible), cache.length), bool)
    return torch.from_numpy(np.concatenate([kept, visible], axis=1)).to(cache.shape.device)
