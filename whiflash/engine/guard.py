"""A drafter may fail at any time; that costs speed, never the text or another request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as Rows
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from whiflash.core.distant import DistantDrafter, FollowingDrafter
from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Drafter, TapDrafter, Target
from whiflash.core.rows import CatchUp, DraftRow, Feedback

logger = logging.getLogger(__name__)
T = TypeVar("T")
MAX_LOGGED_FAILURES = 10


class GuardedDrafter:
    """Implements Drafter around another one. Failures are logged (the first ones with their
    traceback), counted, and answered with "nothing to propose"."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._distant = drafter if isinstance(drafter, DistantDrafter) else None
        self.name = drafter.name
        self.is_free = drafter.is_free
        self.num_failures = 0

    @property
    def is_up(self) -> bool:
        """It can be asked now: a drafter in this process always, another says so itself."""
        return self._distant is None or self._distant.is_up

    @property
    def is_distant(self) -> bool:
        """`ask`, `poll` and `drop` can be used."""
        return self._distant is not None

    @property
    def expected_ms(self) -> float:
        return 0.0 if self._distant is None else self._distant.expected_ms

    def ask(self, rows: Rows[DraftRow]) -> int | None:
        """The round's id; None where the drafter failed."""
        distant = self._require_distant()
        return self._try(lambda: distant.ask(rows), None)

    def poll(self, round_id: int, timeout_s: float) -> list[DraftTree] | None:
        """Sound trees, or None while they are not here."""
        distant = self._require_distant()
        trees = self._try(lambda: distant.poll(round_id, timeout_s), None)
        return None if trees is None else [self._sound(tree) for tree in trees]

    def drop(self, round_id: int) -> None:
        distant = self._require_distant()
        self._try(lambda: distant.drop(round_id), None)

    def _require_distant(self) -> DistantDrafter:
        assert self._distant is not None, f"drafter {self.name} works in this process"
        return self._distant

    def open(
        self,
        sequence_id: int,
        namespace: str,
        prompt_ids: npt.NDArray[np.int32],
        prediction_ids: npt.NDArray[np.int32],
    ) -> None:
        self._try(
            lambda: self._drafter.open(sequence_id, namespace, prompt_ids, prediction_ids), None
        )

    def propose(self, rows: Rows[DraftRow]) -> list[DraftTree]:
        nothing = [DraftTree.empty()] * len(rows)
        trees = self._try(lambda: self._drafter.propose(rows), nothing)
        if len(trees) != len(rows):
            self._note(f"proposed {len(trees)} trees for {len(rows)} rows")
            return nothing
        return [self._sound(tree) for tree in trees]

    def _sound(self, tree: DraftTree) -> DraftTree:
        flaw = tree.flaw()
        if flaw is None:
            return tree
        self._note(f"proposed an ill-formed tree: {flaw}")
        return DraftTree.empty()

    def matched(self, sequence_id: int) -> int:
        return self._try(lambda: self._drafter.matched(sequence_id), 0)

    def learn(self, feedback: Rows[Feedback]) -> None:
        self._try(lambda: self._drafter.learn(feedback), None)

    def close(self, sequence_id: int) -> None:
        self._try(lambda: self._drafter.close(sequence_id), None)

    def check_integrity(self) -> None:
        self._drafter.check_integrity()

    def _try(self, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - whatever a drafter raises, the text goes on
            self._note(repr(error), has_traceback=True)
            return otherwise

    def _note(self, what: str, has_traceback: bool = False) -> None:
        self.num_failures += 1
        if self.num_failures <= MAX_LOGGED_FAILURES:
            logger.error("drafter %s failed: %s", self.name, what, exc_info=has_traceback)


class GuardedTapDrafter(GuardedDrafter):
    """The same around a drafter that reads taps. After a failure it holds nothing of the rows
    that the call was for: what it might have half absorbed is not trusted."""

    def __init__(self, drafter: TapDrafter) -> None:
        super().__init__(drafter)
        self._taps = drafter
        self._following = drafter if isinstance(drafter, FollowingDrafter) else None

    @property
    def weight_hash(self) -> str:
        return self._taps.weight_hash

    @property
    def context_limit(self) -> int:
        return self._taps.context_limit

    def take_over(self) -> bool:
        """Whether it has other weights from now on, and holds nothing."""
        following = self._following
        return following is not None and self._try(following.take_over, False)

    def attach(self, target: Target) -> None:
        """The target keeps its taps. If that fails, it is not asked again."""
        before, following = self.num_failures, self._following
        taps = self._taps
        self._try(lambda: target.keep_taps(taps.weight_hash, taps.boundaries, taps.fuse), None)
        if self.num_failures > before and following is not None:
            following.give_up()

    def absorbed(self, sequence_id: int) -> int:
        return self._try(lambda: self._taps.absorbed(sequence_id), 0)

    def absorb(self, rows: Rows[CatchUp]) -> None:
        before = self.num_failures
        self._try(lambda: self._taps.absorb(rows), None)
        if self.num_failures > before:
            self.forget([row.sequence_id for row in rows])

    def propose(self, rows: Rows[DraftRow]) -> list[DraftTree]:
        before = self.num_failures
        trees = super().propose(rows)
        if self.num_failures > before:
            self.forget([row.sequence_id for row in rows])
        return trees

    def crop(self, sequence_id: int, length: int) -> None:
        if self.absorbed(sequence_id) == 0:
            return  # it holds nothing: another arm may have been asked for by name
        before = self.num_failures
        self._try(lambda: self._taps.crop(sequence_id, length), None)
        if self.num_failures > before:
            self.forget([sequence_id])

    @property
    def num_bytes(self) -> int:
        return self._try(lambda: self._taps.num_bytes, 0)

    def bytes_for(self, row: CatchUp) -> int:
        return self._try(lambda: self._taps.bytes_for(row), 0)

    def forget(self, sequence_ids: Rows[int]) -> None:
        """Open, with nothing absorbed: the K/V are given up."""
        nothing = np.zeros(0, np.int32)
        for sequence_id in sequence_ids:
            self.close(sequence_id)
            self.open(sequence_id, "", nothing, nothing)


def guarded(drafter: Drafter) -> GuardedDrafter:
    """The guard that fits the drafter."""
    if isinstance(drafter, TapDrafter):
        return GuardedTapDrafter(drafter)
    return GuardedDrafter(drafter)
