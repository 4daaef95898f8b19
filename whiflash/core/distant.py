"""A drafter in another process, as the engine waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Drafter, TapDrafter
from whiflash.core.rows import DraftRow


@runtime_checkable
class DistantDrafter(Drafter, Protocol):
    """A drafter that works elsewhere while its caller does something else."""

    @property
    def is_up(self) -> bool:
        """It can be reached now."""

    @property
    def expected_ms(self) -> float:
        """From asking for a round to having it, as things stand."""

    def ask(self, rows: Sequence[DraftRow]) -> int:
        """As `propose`, without waiting; the round's id."""

    def poll(self, round_id: int, timeout_s: float) -> list[DraftTree] | None:
        """The trees of a round, waited for at most so long; None while they are not here. A round
        is taken once."""

    def drop(self, round_id: int) -> None:
        """Nobody waits for the round any more."""


@runtime_checkable
class FollowingDrafter(TapDrafter, DistantDrafter, Protocol):
    """Who is at the other end may come back with other weights, and tells this end how to make its
    fused taps. Until the first one came it has no weights and drafts for no row."""

    def take_over(self) -> bool:
        """Between two rounds: whether another one stands there. From now on it is that one's
        boundaries, weights and limits that are told here, and nothing is absorbed."""

    def give_up(self) -> None:
        """Its taps cannot be kept: it drafts for no row until another one comes."""
