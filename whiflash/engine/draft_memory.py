"""Memory of what drafters hold: draft K/V of running, waiting, parked and finished turns."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Any

from whiflash.core.rows import CatchUp
from whiflash.engine.guard import GuardedTapDrafter

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Reserved:
    """One sequence's share: bytes, and the first position that its drafter was ever given."""

    num_bytes: int
    first_position: int


class DraftMemory:
    """One budget for all arms. Who was not chosen for the longest time loses what was made for it,
    and starts anew with a window when it is chosen again: a matter of speed, never of text.

    num_dropped: states that gave way; num_denied: rows for which no room could be made.
    """

    def __init__(self, drafters: Mapping[str, GuardedTapDrafter], num_bytes: int) -> None:
        self._drafters = drafters
        self.num_bytes = num_bytes
        self._reserved: dict[Key, Reserved] = {}  # least recently used first
        self.num_dropped = 0
        self.num_denied = 0

    @property
    def held_bytes(self) -> int:
        """What is reserved: at least what drafters really hold."""
        return sum(reserved.num_bytes for reserved in self._reserved.values())

    def first_position(self, arm: str, draft_id: int) -> int:
        """Where the arm's state began: 0, or at its window."""
        reserved = self._reserved.get((arm, draft_id))
        return 0 if reserved is None else reserved.first_position

    def admit(self, arm: str, draft_ids: Rows[int], rows: Rows[CatchUp]) -> list[CatchUp]:
        """The rows that may be absorbed now, by one arm that is about to draft for all of
        `draft_ids`. Others' states are dropped for them, but never one of this call."""
        in_use = {(arm, draft_id) for draft_id in draft_ids}
        for key in [key for key in self._reserved if key in in_use]:
            self._reserved[key] = self._reserved.pop(key)  # most recently used now
        return [row for row in rows if self._reserve(arm, row, in_use)]

    def admit_free(self, arm: str, row: CatchUp) -> bool:
        """Room for the row of a new draft id that nobody waits for: nothing is dropped for it."""
        needed = self._drafters[arm].bytes_for(row)
        if self.held_bytes + needed > self.num_bytes:
            return False
        self._reserved[arm, row.sequence_id] = Reserved(needed, row.start)
        return True

    def _reserve(self, arm: str, row: CatchUp, in_use: set[Key]) -> bool:
        key = (arm, row.sequence_id)
        needed, before = self._drafters[arm].bytes_for(row), self._reserved.get(key)
        if not self._make_room(needed - (0 if before is None else before.num_bytes), in_use):
            self.num_denied += 1
            return False
        goes_on = before is not None and row.start > 0 and not row.is_window_start
        first = before.first_position if before is not None and goes_on else row.start
        self._reserved.pop(key, None)
        self._reserved[key] = Reserved(needed, first)
        return True

    def _make_room(self, missing: int, in_use: set[Key]) -> bool:
        """False, and nothing is dropped, where that would not be enough."""
        fixed = sum(held.num_bytes for key, held in self._reserved.items() if key in in_use)
        if fixed + missing > self.num_bytes:
            return False
        idle = [key for key in self._reserved if key not in in_use]
        for key in idle:
            if self.held_bytes + missing <= self.num_bytes:
                break
            arm, draft_id = key
            self._drafters[arm].forget([draft_id])
            del self._reserved[key]
            self.num_dropped += 1
        return True

    def forget_arm(self, arm: str) -> None:
        """Its drafter holds nothing any more."""
        self._reserved = {key: held for key, held in self._reserved.items() if key[0] != arm}

    def release(self, draft_id: int) -> None:
        """Its drafters have closed it."""
        for arm in self._drafters:
            self._reserved.pop((arm, draft_id), None)

    def describe(self) -> dict[str, Any]:
        """For the plan."""
        return {
            "limit_bytes": self.num_bytes,
            "held_bytes": self.held_bytes,
            "dropped": self.num_dropped,
            "denied": self.num_denied,
        }

    def check_integrity(self) -> None:
        """Raises AssertionError if drafters hold more than is reserved, or the budget less."""
        assert self.held_bytes <= self.num_bytes, (self.held_bytes, self.num_bytes)
        for arm, drafter in self._drafters.items():
            own = [held for (owner, _), held in self._reserved.items() if owner == arm]
            reserved = sum(held.num_bytes for held in own)
            assert drafter.num_bytes <= reserved, f"{arm} holds {drafter.num_bytes} of {reserved}"
