"""The EAGLE-3 drafter: K/V of real taps, and each round a tree that is thrown away.

Position i pairs the fused tap of i with the embedding of token i + 1. Kept K/V are those of
positions made from real taps; a drafted level's K/V are scratch behind them (drafters.md 1.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from whiflash.core.draft import DraftTree
from whiflash.core.fuse import FuseWeights
from whiflash.core.rows import CatchUp, DraftRow
from whiflash.core.shape import DraftShape
from whiflash.drafters.eagle3.model import Eagle3Body
from whiflash.drafters.eagle3.options import Eagle3Options
from whiflash.drafters.eagle3.rows import AbsorbedRows, BeamRows, LastRows
from whiflash.drafters.eagle3.tree import GrowingTree
from whiflash.drafters.neural import NeuralDrafter
from whiflash.drafters.scores import best_candidates
from whiflash.drafters.trees.growth import Growth
from whiflash.models.draft.cache import DraftCache, DraftCacheShape
from whiflash.models.draft.rope import Rope
from whiflash.models.draft.vocabulary import DraftVocabulary

NAME = "eagle3"


@dataclass(slots=True)
class Eagle3State:
    """One sequence. last_fused: [h], the fused tap of the last kept position; next_id: the token
    that follows it, which its K/V depend on."""

    cache: DraftCache
    last_fused: torch.Tensor | None = None
    next_id: int = -1


@dataclass(frozen=True, slots=True)
class Eagle3Parts:
    """A read checkpoint. embedding: [target ids, h]; notes: what the loader resolved."""

    body: Eagle3Body
    rope: Rope
    vocabulary: DraftVocabulary
    embedding: torch.Tensor
    boundaries: tuple[int, ...]
    weight_hash: str
    context_limit: int
    notes: tuple[str, ...] = ()


class Eagle3Drafter(NeuralDrafter[Eagle3State]):
    """Implements TapDrafter. `notes` tell what was resolved at load."""

    def __init__(self, parts: Eagle3Parts, options: Eagle3Options) -> None:
        shape = parts.body.variant.shape
        cache_shape = DraftCacheShape(
            num_layers=shape.num_hidden_layers,
            num_heads=shape.num_kv_heads,
            width=shape.head_width,
            dtype=parts.embedding.dtype,
            device=parts.embedding.device,
        )
        super().__init__(
            NAME, parts.boundaries, parts.weight_hash, parts.context_limit, shape.hidden_size,
            cache_shape, options.max_scratch,
        )  # fmt: skip
        self.notes = parts.notes
        self.options = options
        self._body, self._rope = parts.body, parts.rope
        self._vocabulary, self._embedding = parts.vocabulary, parts.embedding

    @property
    def draft_shape(self) -> DraftShape:
        return self.options.shape

    def fuse(self, taps: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return self._body.fuse(self._placed(taps))

    def fuse_weights(self) -> FuseWeights:
        return self._body.fuse_weights()

    def _placed(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(device=self._cache_shape.device, dtype=self._cache_shape.dtype)

    def _new_state(self, start: int) -> Eagle3State:
        return Eagle3State(DraftCache(self._cache_shape, start))

    def _crop(self, held: Eagle3State, length: int) -> None:
        """The last position whose next token still holds is length - 2."""
        if length > held.cache.end:
            return
        if length - 1 < held.cache.start:
            held.cache = DraftCache(self._cache_shape, max(length - 1, 0))
        held.cache.crop(length - 1)
        held.last_fused, held.next_id = None, -1

    def _absorb(self, rows: Sequence[tuple[Eagle3State, CatchUp]]) -> None:
        counts = [len(row.token_ids) - 1 for _, row in rows]
        fused = self._placed(torch.cat([row.fused for _, row in rows]))
        next_ids = np.concatenate([row.token_ids[1:] for _, row in rows])
        positions = np.concatenate(
            [np.arange(r.start, r.start + len(r.token_ids) - 1) for _, r in rows]
        )
        batch = AbsorbedRows([held.cache for held, _ in rows], counts)
        self._body.store(self._embed(next_ids), fused, self._turns(positions), batch)
        batch.keep()
        lasts = np.cumsum(counts) - 1
        for (held, row), last in zip(rows, lasts.tolist(), strict=True):
            held.last_fused, held.next_id = fused[last].clone(), int(row.token_ids[-1])

    def _propose(self, rows: Sequence[tuple[Eagle3State, DraftRow]]) -> list[DraftTree]:
        trees = [GrowingTree(held.cache, row, self._growth(row)) for held, row in rows]
        features, logits = self._first_step(rows)
        active = self._grow(trees, features, logits, [1] * len(trees))
        while active:
            features, logits = self._next_step(active)
            active = self._grow(active, features, logits, [tree.width for tree in active])
        return [
            self._tables.of(tree.row.namespace).tree(
                tree.growth.nodes(), self.options.tree, is_sampled=tree.row.sampling is not None
            )
            for tree in trees
        ]

    def _growth(self, row: DraftRow) -> Growth:
        room = self.context_limit - len(row.context)
        return self.options.growth(row.max_nodes, min(row.max_depth, room))

    def _first_step(
        self, rows: Sequence[tuple[Eagle3State, DraftRow]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The last committed position of each row in full."""
        fused = torch.stack([self._last_fused(held, row) for held, row in rows])
        roots = np.array([row.context[-1] for _, row in rows])
        positions = np.array([len(row.context) - 2 for _, row in rows])
        batch = LastRows([held.cache for held, _ in rows])
        out = self._body.run(self._embed(roots), fused, self._turns(positions), batch)
        return self._body.finish(out)

    def _last_fused(self, held: Eagle3State, row: DraftRow) -> torch.Tensor:
        if held.last_fused is None or held.next_id != int(row.context[-1]):
            raise ValueError(
                f"sequence {row.sequence_id} was absorbed with another root than it has; crop it"
            )
        return held.last_fused

    def _next_step(self, trees: Sequence[GrowingTree]) -> tuple[torch.Tensor, torch.Tensor]:
        """One level of each tree."""
        ids = np.concatenate([tree.tokens for tree in trees])
        features = torch.cat([tree.features for tree in trees])
        positions = np.concatenate([tree.positions for tree in trees])
        batch = BeamRows([tree.cache for tree in trees], [tree.seen for tree in trees])
        out = self._body.run(self._embed(ids), features, self._turns(positions), batch)
        return self._body.finish(out)

    def _grow(
        self,
        trees: Sequence[GrowingTree],
        features: torch.Tensor,
        logits: torch.Tensor,
        widths: Sequence[int],
    ) -> list[GrowingTree]:
        """Hands each tree its rows; returns the trees that go on."""
        parts = zip(trees, features.split(list(widths)), logits.split(list(widths)), strict=True)
        return [tree for tree, own, scores in parts if self._grow_one(tree, own, scores)]

    def _grow_one(self, tree: GrowingTree, features: torch.Tensor, logits: torch.Tensor) -> bool:
        depth = tree.depth + 1
        num_ids = tree.growth.num_candidates
        candidates = best_candidates(
            logits, self._vocabulary, num_ids, tree.row.sampling, [depth] * len(logits)
        )
        return tree.grow(candidates, features)

    def _embed(self, ids: np.ndarray[tuple[int], np.dtype[np.int32]]) -> torch.Tensor:
        places = torch.from_numpy(ids.astype(np.int64)).to(self._cache_shape.device)
        return functional.embedding(places, self._embedding)

    def _turns(
        self, positions: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._rope.turns(torch.from_numpy(positions).to(self._cache_shape.device))
