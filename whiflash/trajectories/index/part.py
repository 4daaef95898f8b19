"""A part of a live index: one automaton, and where each record lies in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.index import layout, live_search
from whiflash.trajectories.index.automaton import Automaton, Ids, no_matches
from whiflash.trajectories.index.longest import Homes
from whiflash.trajectories.index.lookup import LookupBatch, Odds
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.sealed.grams import Bits, note_grams
from whiflash.trajectories.sealed.ledger import Run

MIN_PART_TOKENS = 256
GRAM_BITS_PER_TOKEN = 8


Tables = tuple[Ids, Ids, Ids, Ids]
Room = tuple[Tables, Bits]
"""Larger tables of an automaton, and the filter that goes with them."""


@dataclass(frozen=True, slots=True)
class RunSpan:
    """Where one record lies in its part: positions [start, end) of the text."""

    run_id: str
    subject: str
    digest: bytes
    start: int
    end: int
    record_id: int = 0
    time_ms: int = 0


@dataclass(slots=True)
class Part:
    """matches: int64 [readers, NUM_MATCH_COLUMNS]; grams: the filter over the automaton's text."""

    automaton: Automaton
    matches: npt.NDArray[np.int64]
    grams: Bits
    spans: list[RunSpan] = field(default_factory=list)
    stamp: int = field(default_factory=itertools.count(1).__next__)

    @classmethod
    def empty(cls, num_readers: int) -> Self:
        automaton = Automaton(MIN_PART_TOKENS)
        return cls(automaton, no_matches(num_readers), _filter(len(automaton.text)))

    @property
    def num_bytes(self) -> int:
        return self.automaton.num_bytes + self.matches.nbytes + self.grams.nbytes

    def append(self, tokens: Ids) -> int:
        """Appends to the current run as far as there is room; how many. Under the index's lock."""
        first = len(self.automaton) + 1
        done = self.automaton.append(tokens)
        note_grams(self.automaton.text, first, first + done, self.grams)
        return done

    def room_made(self, num_tokens: int) -> Room:
        """As that of the automaton, and a filter to go with it."""
        return self._with_filter(self.automaton.room_made(num_tokens))

    def trimmed(self) -> Room:
        """As that of the automaton."""
        return self._with_filter(self.automaton.trimmed())

    def _with_filter(self, tables: Tables) -> Room:
        text = tables[-1]
        grams = _filter(len(text))
        note_grams(text, 1, len(self.automaton) + 1, grams)
        return tables, grams

    def take_room(self, room: Room) -> None:
        """Nothing may have been appended since it was made. Under the index's lock."""
        tables, self.grams = room
        self.automaton.take_room(tables)

    def match(
        self, batch: LookupBatch, homes: Homes, first: int, end: int, rank: int, *, is_home: bool
    ) -> None:
        """See `longest.Source`, which a part is one of."""
        held = self.automaton
        live_search.match_rows(
            held.states, held.edges, held.slots, held.head, self.grams, self.matches, homes,
            batch.rows, batch.tails, batch.winners, first, end, rank, self.stamp if is_home else 0,
        )  # fmt: skip

    def draft(
        self, batch: LookupBatch, first: int, end: int, rank: int, odds: Odds, min_survival: float
    ) -> None:
        """See `longest.Source`."""
        held = self.automaton
        live_search.draft_rows(
            held.states, held.edges, held.slots, held.text, batch.rows, odds, batch.nodes,
            batch.survival, batch.firsts, batch.summaries, batch.winners, first, end, rank,
            min_survival,
        )  # fmt: skip

    def note(self, record: TrajectoryRecord, digest: bytes, start: int) -> None:
        """The tokens from `start` on are those of the record."""
        self.spans.append(
            RunSpan(
                record.run_id, record.subject, digest, start, len(self.automaton),
                record.record_id, record.time_ms,
            )
        )  # fmt: skip

    def tokens(self, span: RunSpan) -> npt.NDArray[np.int32]:
        """int32 [n]; position 0 of an automaton's text stays free."""
        return self.automaton.text[span.start + 1 : span.end + 1]

    def runs(self) -> list[Run]:
        """Copies of all that it holds, oldest first."""
        return [
            Run(span.record_id, span.time_ms, span.run_id, span.subject, self.tokens(span).copy())
            for span in self.spans
        ]

    def without(self, is_unwanted: Callable[[RunSpan], bool]) -> Part:
        """A new one, not read yet, of the other runs."""
        rebuilt = Part.empty(0)
        for span in self.spans:
            if is_unwanted(span):
                continue
            start = len(rebuilt.automaton)
            rebuilt.automaton.extend(self.tokens(span))
            rebuilt.automaton.end_run()
            end = len(rebuilt.automaton)
            rebuilt.spans.append(replace(span, start=start, end=end))
        rebuilt.take_room(rebuilt.trimmed())
        return rebuilt

    def check_integrity(self, num_readers: int) -> None:
        """Raises AssertionError if an invariant is broken."""
        self.automaton.check_integrity()
        assert self.matches.shape[0] == num_readers, "a reader without a match row"
        ends = [0, *(span.end for span in self.spans)]
        assert [span.start for span in self.spans] == ends[:-1], "runs must adjoin"
        assert ends[-1] == len(self.automaton), ends[-1]


def _filter(num_tokens: int) -> Bits:
    return np.zeros(num_tokens * GRAM_BITS_PER_TOKEN // 8, np.uint8)


def warm_up() -> None:
    """Compiles the kernels of a live part, or loads them from numba's cache."""
    part, batch = Part.empty(1), LookupBatch()
    part.append(np.zeros(1, np.int32))
    batch.begin([(0, 0, 0, 1, 1)])
    part.match(batch, np.zeros(1, np.int64), 0, 1, 0, is_home=False)
    part.draft(batch, 0, 0, 0, np.ones(layout.NUM_CELLS, np.float32), 0.0)


def digests(spans: Iterable[RunSpan]) -> list[bytes]:
    return [span.digest for span in spans]
