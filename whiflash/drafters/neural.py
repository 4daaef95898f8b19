"""What all drafters that read taps share: open sequences, their cursors, survival, learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from whiflash.core.draft import DraftTree
from whiflash.core.rows import CatchUp, DraftRow, Feedback
from whiflash.drafters.survival import SurvivalTables
from whiflash.models.draft.cache import DraftCache, DraftCacheShape

Ids = npt.NDArray[np.int32]


class OpenDraft(Protocol):
    """What a drafter holds for one open sequence."""

    cache: DraftCache


Held = TypeVar("Held", bound=OpenDraft)


class NeuralDrafter(ABC, Generic[Held]):
    """Base of `core.protocols.TapDrafter` implementations. One thread uses it.

    A sequence holds K/V of the positions [cache.start, cache.end); `_new_state(start)` makes an
    empty one, `_absorb` and `_propose` are the method's own.

    cache_shape: of those K/V. max_scratch: most positions that a proposal writes behind them.
    """

    def __init__(
        self,
        name: str,
        boundaries: tuple[int, ...],
        weight_hash: str,
        context_limit: int,
        fused_width: int,
        cache_shape: DraftCacheShape,
        max_scratch: int,
    ) -> None:
        self._name = name
        self._boundaries = boundaries
        self._weight_hash = weight_hash
        self._context_limit = context_limit
        self._fused_width = fused_width
        self._cache_shape = cache_shape
        self._max_scratch = max_scratch
        self._open: dict[int, Held] = {}
        self._tables = SurvivalTables()

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_free(self) -> bool:
        return False

    @property
    def boundaries(self) -> tuple[int, ...]:
        return self._boundaries

    @property
    def weight_hash(self) -> str:
        return self._weight_hash

    @property
    def context_limit(self) -> int:
        return self._context_limit

    @property
    def fused_width(self) -> int:
        return self._fused_width

    @property
    def num_bytes(self) -> int:
        """Memory of the open sequences' K/V."""
        return sum(held.cache.num_bytes for held in self._open.values())

    @property
    def cache_bytes_per_token(self) -> int:
        return self._cache_shape.bytes_per_position

    def bytes_for(self, row: CatchUp) -> int:
        """Most memory of the row's sequence once it is absorbed and a round was drafted from it."""
        held = None if row.is_window_start else self._open.get(row.sequence_id)
        kept, now = (0, 0) if held is None else (held.cache.length, held.cache.num_bytes)
        positions = kept + len(row.token_ids) - 1 + self._max_scratch
        return max(now, self._cache_shape.num_bytes(positions))

    @abstractmethod
    def fuse(self, taps: torch.Tensor) -> torch.Tensor:
        """[n, boundaries * target width] -> [n, fused width]."""

    @abstractmethod
    def _new_state(self, start: int) -> Held:
        """An empty state whose K/V begin at position `start`."""

    @abstractmethod
    def _absorb(self, rows: Sequence[tuple[Held, CatchUp]]) -> None:
        """Appends K/V of all rows' positions; every row has some."""

    @abstractmethod
    def _propose(self, rows: Sequence[tuple[Held, DraftRow]]) -> list[DraftTree]:
        """Trees of rows that are within the context limit and have something absorbed."""

    @abstractmethod
    def _crop(self, held: Held, length: int) -> None:
        """Forget what depends on tokens from `length` on."""

    def open(
        self,
        sequence_id: int,
        namespace: str,  # noqa: ARG002  (survival is looked up by row)
        prompt_ids: Ids,  # noqa: ARG002
        prediction_ids: Ids,  # noqa: ARG002
    ) -> None:
        """Nothing is absorbed yet."""
        self._open[sequence_id] = self._new_state(0)

    def close(self, sequence_id: int) -> None:
        self._open.pop(sequence_id, None)

    def matched(self, sequence_id: int) -> int:  # noqa: ARG002
        """Matching has no meaning here."""
        return 0

    def absorbed(self, sequence_id: int) -> int:
        held = self._open.get(sequence_id)
        return 0 if held is None else held.cache.end

    def crop(self, sequence_id: int, length: int) -> None:
        self._crop(self._held(sequence_id), length)

    def absorb(self, rows: Sequence[CatchUp]) -> None:
        pairs = [(self._ready_for(row), row) for row in rows]
        if len({row.sequence_id for row in rows}) != len(rows):
            raise ValueError("a sequence may appear once in a catch-up")
        if pairs:
            with torch.inference_mode():
                self._absorb(pairs)

    def _held(self, sequence_id: int) -> Held:
        held = self._open.get(sequence_id)
        if held is None:
            raise ValueError(f"sequence {sequence_id} is not open in drafter {self._name}")
        return held

    def _ready_for(self, row: CatchUp) -> Held:
        held, count = self._held(row.sequence_id), len(row.token_ids) - 1
        if count < 1 or tuple(row.fused.shape) != (count, self._fused_width):
            raise ValueError(
                f"a catch-up of {len(row.token_ids)} ids needs one fused tap of "
                f"{self._fused_width} less, got {tuple(row.fused.shape)}"
            )
        if row.is_window_start:
            held = self._open[row.sequence_id] = self._new_state(row.start)
        if row.start != held.cache.end:
            raise ValueError(
                f"sequence {row.sequence_id} is absorbed up to {held.cache.end}, the catch-up "
                f"starts at {row.start}"
            )
        return held

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        """Empty trees for rows that reach past the context limit. Raises ValueError on a row that
        is not open or lags behind its root."""
        trees = [DraftTree.empty()] * len(rows)
        asked = [i for i, row in enumerate(rows) if len(row.context) < self._context_limit]
        pairs = [(self._synchronised(rows[i]), rows[i]) for i in asked]
        if pairs:
            with torch.inference_mode():
                for number, tree in zip(asked, self._propose(pairs), strict=True):
                    trees[number] = tree
        return trees

    def _synchronised(self, row: DraftRow) -> Held:
        held = self._held(row.sequence_id)
        if held.cache.end != len(row.context) - 1:
            raise ValueError(
                f"sequence {row.sequence_id} is absorbed up to {held.cache.end}, but its root is "
                f"at {len(row.context) - 1}"
            )
        return held

    def learn(self, feedback: Sequence[Feedback]) -> None:
        """Outcomes of own trees, whether verified or shadow; others teach nothing here."""
        self._tables.learn(feedback)

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        self._tables.check_integrity()
        for held in self._open.values():
            held.cache.check_integrity()
