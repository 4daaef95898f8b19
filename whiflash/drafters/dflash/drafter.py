"""The DFlash drafter: one pass per round for all rows, a chain of the block's best tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from whiflash.core.draft import DraftTree
from whiflash.core.fuse import FuseWeights
from whiflash.core.rows import CatchUp, DraftRow
from whiflash.core.shape import CHAIN, DraftShape
from whiflash.drafters.dflash.load import DFlashParts
from whiflash.drafters.neural import NeuralDrafter
from whiflash.drafters.scores import best_candidates
from whiflash.drafters.survival import ScoredNodes
from whiflash.drafters.trees.ddtree import Candidates, Prefixes
from whiflash.models.draft.cache import DraftCache

NAME = "dflash"


@dataclass(slots=True)
class BlockState:
    """One open sequence: context K/V of its absorbed positions; blocks leave nothing behind."""

    cache: DraftCache


class DFlashDrafter(NeuralDrafter[BlockState]):
    """Implements TapDrafter. A round's block is [root, MASK, ...]; slot i drafts the token at its
    own position root + i, all slots at once and none knowing the others' tokens.

    The tree is a chain here; subclasses grow others from the same marginals.
    """

    def __init__(self, parts: DFlashParts, name: str = NAME) -> None:
        super().__init__(
            name,
            parts.boundaries,
            parts.weight_hash,
            parts.context_limit,
            parts.embedding.shape[1],
            parts.cache_shape,
            max_scratch=parts.block_size,
        )
        self.parts = parts
        self.notes = parts.notes

    @property
    def draft_shape(self) -> DraftShape:
        return DraftShape(CHAIN, self.parts.block_size - 1)

    def fuse(self, taps: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return self.parts.model.fuse(taps.to(self.parts.cache_shape.dtype))

    def fuse_weights(self) -> FuseWeights:
        return self.parts.model.fuse_weights()

    def _new_state(self, start: int) -> BlockState:
        return BlockState(DraftCache(self.parts.cache_shape, start))

    def _crop(self, held: BlockState, length: int) -> None:
        if length < held.cache.start:
            held.cache = DraftCache(self.parts.cache_shape, length)
        held.cache.crop(length)

    def _absorb(self, rows: Sequence[tuple[BlockState, CatchUp]]) -> None:
        shape = self.parts.cache_shape
        fused = torch.cat([row.fused.to(shape.device, shape.dtype) for _, row in rows])
        caches, counts = [held.cache for held, _ in rows], [len(row.fused) for _, row in rows]
        self.parts.model.absorb(fused, counts, caches, self.parts.rope)

    def _propose(self, rows: Sequence[tuple[BlockState, DraftRow]]) -> list[DraftTree]:
        depths = [self._depth(row) for _, row in rows]
        logits = self.parts.head(self._slots(rows, depths)).split(depths)
        return [self._tree(row, own) for (_, row), own in zip(rows, logits, strict=True)]

    def _depth(self, row: DraftRow) -> int:
        """Slots whose logits the row has a use for."""
        return min(self.parts.block_size - 1, row.max_depth)

    def _slots(
        self, rows: Sequence[tuple[BlockState, DraftRow]], depths: Sequence[int]
    ) -> torch.Tensor:
        """[sum of depths, h], hidden states of the first drafted slots of each row."""
        parts, size = self.parts, self.parts.block_size
        ids = torch.full((len(rows), size), parts.mask_token_id)
        ids[:, 0] = torch.tensor([int(row.context[-1]) for _, row in rows])
        embedded = functional.embedding(ids.flatten().to(parts.embedding.device), parts.embedding)
        hidden = parts.model.fill(embedded, [held.cache for held, _ in rows], parts.rope)
        wanted = [number * size + 1 + slot for number, d in enumerate(depths) for slot in range(d)]
        return hidden[torch.tensor(wanted, device=hidden.device)]

    def _tree(self, row: DraftRow, logits: torch.Tensor) -> DraftTree:
        """logits: [depths, draft vocabulary], the marginals of the row's positions."""
        num_ids = self._num_candidates(row)
        depths = range(1, len(logits) + 1)
        marginals = best_candidates(logits, self.parts.vocabulary, num_ids, row.sampling, depths)
        nodes = self._grow(marginals, row.max_nodes)
        scored = ScoredNodes(
            nodes.tokens,
            nodes.parents,
            nodes.depths,
            marginals.log_weights[nodes.depths - 1, nodes.ranks],
            nodes.ranks,
        )
        table = self._tables.of(row.namespace)
        return table.tree(scored, self.name, is_sampled=row.sampling is not None)

    def _num_candidates(self, row: DraftRow) -> int:  # noqa: ARG002  (trees depend on it)
        """How many ids of each position `_grow` will look at."""
        return 1

    def _grow(self, marginals: Candidates, max_nodes: int) -> Prefixes:
        """At most `max_nodes` nodes from the marginals."""
        return best_chain(marginals, max_nodes)


def best_chain(marginals: Candidates, max_nodes: int) -> Prefixes:
    """Each position's best token, up to the first position that has none."""
    best = marginals.log_weights[:max_nodes, 0]
    is_open = np.isfinite(best)
    length = len(best) if is_open.all() else int(np.argmin(is_open))
    depths = np.arange(1, length + 1, dtype=np.int32)
    tokens = marginals.tokens[:length, 0].astype(np.int32)
    ranks = np.zeros(length, np.int32)
    return Prefixes(tokens, depths - 1, depths, ranks, np.cumsum(best[:length]))
