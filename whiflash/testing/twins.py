"""A drafter that was never away, beside one that an engine uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from whiflash.core.draft import DraftTree
from whiflash.core.protocols import ForwardSegment
from whiflash.core.rows import CatchUp, DraftRow
from whiflash.drafters.neural import NeuralDrafter
from whiflash.models.draft.cache import DraftCache
from whiflash.target.target import LocalTarget

MOST_KV_GAP = 1e-9
_NO_IDS = np.zeros(0, np.int32)


class Twin:
    """Compares all that `watched` proposes with what `own`, a drafter of the same weights, drafts
    from the taps of a fresh forward over the whole context, alone and absorbed at once.

    Where `watched` began with a window, so does the twin; one that holds less than half of
    `window_tokens` though more was there is a fault as well. `faults` say what differed.
    """

    def __init__(
        self,
        watched: NeuralDrafter[Any],
        own: NeuralDrafter[Any],
        target: LocalTarget,
        window_tokens: int,
    ) -> None:
        self._watched, self._own, self._target = watched, own, target
        self._window_tokens = window_tokens
        own._tables = watched._tables  # survival is learned from outcomes, which both share
        self._propose = watched.propose
        self._next_id = 0
        self.num_compared = 0
        self.faults: list[str] = []
        watched.propose = self._compared  # type: ignore[method-assign]

    def _compared(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = self._propose(rows)
        for row, tree in zip(rows, trees, strict=True):
            self._compare(row, tree)
        return trees

    def _compare(self, row: DraftRow, tree: DraftTree) -> None:
        kept, root = self._watched._open[row.sequence_id].cache, len(row.context) - 1
        self.num_compared += 1
        if root - kept.start < min(self._window_tokens // 2, root):
            self.faults.append(f"root {root}: holds positions from {kept.start} on only")
        expected, fresh = self._from_scratch(row, kept.start)
        if not has_same_nodes(tree, expected):
            self.faults.append(f"root {root}: {tree} instead of {expected}")
        elif not np.allclose(tree.survival, expected.survival, rtol=0, atol=1e-6):
            self.faults.append(f"root {root}: same nodes, other survival")
        if not _is_same_kv(kept, fresh):
            self.faults.append(f"root {root}: the K/V differ")

    def _from_scratch(self, row: DraftRow, start: int) -> tuple[DraftTree, DraftCache]:
        """What a drafter proposes that has absorbed the positions from `start` on, and its K/V."""
        root = len(row.context) - 1
        cache = self._target.new_cache(root)
        self._target.forward([ForwardSegment(cache, row.context[:root].astype(np.int64), None, 0)])
        cache.commit(range(root))
        fused = cache.fused_taps(self._own.weight_hash, start, root)
        self._next_id += 1
        self._own.open(self._next_id, row.namespace, _NO_IDS, _NO_IDS)
        self._own.absorb([CatchUp(self._next_id, start, row.context[start:], fused, start > 0)])
        (tree,) = self._own.propose([replace(row, sequence_id=self._next_id)])
        kept = self._own._open[self._next_id].cache
        self._own.close(self._next_id)
        cache.release()
        return tree, kept


def has_same_nodes(a: DraftTree, b: DraftTree) -> bool:
    """Same ids and parents, in the same order."""
    return np.array_equal(a.tokens, b.tokens) and np.array_equal(a.parents, b.parents)


def _is_same_kv(a: DraftCache, b: DraftCache) -> bool:
    return all(
        one.shape == other.shape and float((one - other).abs().max()) <= MOST_KV_GAP
        for layer in range(a.shape.num_layers)
        for one, other in zip(a.read(layer), b.read(layer), strict=True)
    )
