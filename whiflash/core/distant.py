"""A drafter in another process, as the engine waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Drafter
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
