"""A part of a live index: one automaton, and where each record lies in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.index.automaton import Automaton, no_matches
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.sealed.ledger import Run

MIN_PART_TOKENS = 256


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
    """matches: int64 [readers, NUM_MATCH_COLUMNS]."""

    automaton: Automaton
    matches: npt.NDArray[np.int64]
    spans: list[RunSpan] = field(default_factory=list)

    @classmethod
    def empty(cls, num_readers: int) -> Self:
        return cls(Automaton(MIN_PART_TOKENS), no_matches(num_readers))

    @property
    def num_bytes(self) -> int:
        return self.automaton.num_bytes + self.matches.nbytes

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
        rebuilt.automaton.take_room(rebuilt.automaton.trimmed())
        return rebuilt

    def check_integrity(self, num_readers: int) -> None:
        """Raises AssertionError if an invariant is broken."""
        self.automaton.check_integrity()
        assert self.matches.shape[0] == num_readers, "a reader without a match row"
        ends = [0, *(span.end for span in self.spans)]
        assert [span.start for span in self.spans] == ends[:-1], "runs must adjoin"
        assert ends[-1] == len(self.automaton), ends[-1]


def digests(spans: Iterable[RunSpan]) -> list[bytes]:
    return [span.digest for span in spans]
