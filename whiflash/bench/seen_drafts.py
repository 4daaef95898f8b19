"""Drafters that keep what they thought at each root: logits, and the first token they drafted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from whiflash.bench.absorb import twin_of
from whiflash.core.draft import DraftTree
from whiflash.core.rows import DraftRow
from whiflash.drafters.dflash.drafter import DFlashDrafter
from whiflash.drafters.eagle3.drafter import Eagle3Drafter, Eagle3State
from whiflash.drafters.neural import NeuralDrafter
from whiflash.models.draft.vocabulary import DraftVocabulary

Logits = npt.NDArray[np.float32]


@dataclass(slots=True)
class Seen:
    """By index of the root in the sequence's ids: logits [slots, draft vocabulary] of the tokens
    that follow it, of one slot where later ones depend on the draft; first: drafted token."""

    vocabulary: DraftVocabulary
    logits: dict[int, Logits] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)

    def note(self, rows: Sequence[DraftRow], trees: Sequence[DraftTree]) -> None:
        for row, tree in zip(rows, trees, strict=True):
            if len(tree):
                self.first[len(row.context) - 1] = int(tree.tokens[0])

    def take(self, row: DraftRow, logits: torch.Tensor) -> None:
        self.logits[len(row.context) - 1] = logits.detach().float().cpu().numpy()

    def whole(self, logits: Logits) -> Logits:
        """One slot's logits by target id, -inf where the draft vocabulary has none."""
        whole = np.full(self.vocabulary.target_size, -np.inf, np.float32)
        whole[self.vocabulary.target_ids] = logits
        return whole

    def clear(self) -> None:
        self.logits.clear()
        self.first.clear()


class SeenEagle3(Eagle3Drafter):
    """On the weights of another drafter."""

    def __init__(self, drafter: Eagle3Drafter) -> None:
        vars(self).update(vars(twin_of(drafter)))
        self.seen = Seen(self._vocabulary)

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = super().propose(rows)
        self.seen.note(rows, trees)
        return trees

    def _first_step(
        self, rows: Sequence[tuple[Eagle3State, DraftRow]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        features, logits = super()._first_step(rows)
        for (_, row), own in zip(rows, logits, strict=True):
            self.seen.take(row, own[None])
        return features, logits


class SeenDFlash(DFlashDrafter):
    """On the weights of another drafter."""

    def __init__(self, drafter: DFlashDrafter) -> None:
        vars(self).update(vars(twin_of(drafter)))
        self.seen = Seen(self.parts.vocabulary)

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = super().propose(rows)
        self.seen.note(rows, trees)
        return trees

    def _tree(self, row: DraftRow, logits: torch.Tensor) -> DraftTree:
        self.seen.take(row, logits)
        return super()._tree(row, logits)


def seen_twin(drafter: NeuralDrafter[Any]) -> SeenEagle3 | SeenDFlash:
    """Raises TypeError for a drafter of another kind."""
    if isinstance(drafter, Eagle3Drafter):
        return SeenEagle3(drafter)
    if type(drafter) is DFlashDrafter:
        return SeenDFlash(drafter)
    raise TypeError(f"{drafter.name} shows no logits")
