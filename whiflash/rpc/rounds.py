"""Rounds that were asked of a drafter and are not taken yet."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from whiflash.core.draft import DraftTree
from whiflash.core.rows import DraftRow
from whiflash.rpc.convert import read_tree
from whiflash.rpc.v1 import drafter_service_pb2 as pb

_RATE = 0.2
FIRST_MS = 5.0
MAX_OPEN = 64


@dataclass(slots=True)
class AskedRound:
    """places: index in the caller's list of each row that was sent."""

    rows: list[DraftRow]
    places: list[int]
    epoch: int
    asked_s: float = field(default_factory=time.perf_counter)
    trees: dict[int, DraftTree] = field(default_factory=dict)
    resyncs: dict[int, pb.Resync] = field(default_factory=dict)
    is_complete: bool = False

    def in_order(self) -> list[DraftTree]:
        """A tree per row, empty where none came."""
        return [self.trees.get(number, DraftTree.empty()) for number in range(len(self.rows))]


class Rounds:
    """By id. expected_ms: from asking to having, a slow average that late rounds are part of; one
    that was waited for and was quicker is believed at once, as waiting in vain costs one hold.
    num_late: trees that came when nobody waited any more. host_ms: what the last complete round
    took the drafter itself."""

    def __init__(self) -> None:
        self._open: dict[int, AskedRound] = {}
        self._dropped: dict[int, float] = {}
        self._next_id = 0
        self.expected_ms = FIRST_MS
        self.num_late = 0
        self.host_ms = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, asked: AskedRound) -> int:
        self._next_id += 1
        self._open[self._next_id] = asked
        return self._next_id

    def get(self, round_id: int) -> AskedRound | None:
        return self._open.get(round_id)

    def note(self, drafted: pb.Drafted, now_s: float) -> AskedRound | None:
        """A frame that came; the round if it is complete now."""
        asked = self._open.get(drafted.round_id)
        if asked is None:
            self._note_late(drafted, now_s)
            return None
        for row in drafted.rows:
            place = asked.places[row.row] if row.row < len(asked.places) else -1
            if row.WhichOneof("answer") == "tree":
                asked.trees[place] = read_tree(row.tree)
            elif row.WhichOneof("answer") == "resync":
                asked.resyncs[place] = row.resync
        if not drafted.is_last:
            return None
        asked.is_complete = True
        self.host_ms = drafted.draft_ms
        ms = 1e3 * (now_s - asked.asked_s)
        self._learn(ms)
        self.expected_ms = min(self.expected_ms, ms)
        return asked

    def _note_late(self, drafted: pb.Drafted, now_s: float) -> None:
        asked_s = self._dropped.pop(drafted.round_id, None)
        self.num_late += 1
        if asked_s is not None and drafted.is_last:
            self._learn(1e3 * (now_s - asked_s))

    def _learn(self, ms: float) -> None:
        self.expected_ms += _RATE * (ms - self.expected_ms)

    def take(self, round_id: int) -> AskedRound | None:
        """It is over for its caller."""
        return self._open.pop(round_id, None)

    def drop(self, round_id: int) -> None:
        """What comes of it is late."""
        asked = self._open.pop(round_id, None)
        if asked is not None:
            self._dropped[round_id] = asked.asked_s
            while len(self._dropped) > MAX_OPEN:
                self._dropped.pop(next(iter(self._dropped)))

    def lose(self) -> None:
        """The stream ended: no answer will come to what is open."""
        for asked in self._open.values():
            asked.is_complete = True
        self._dropped.clear()
