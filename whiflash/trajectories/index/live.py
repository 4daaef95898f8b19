"""The live index of one namespace: several automata, the newest one growing."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import numpy as np

from whiflash.core.errors import ConfigError
from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.index.automaton import Ids, no_matches
from whiflash.trajectories.index.longest import NOBODY, Homes, Source, draft_longest
from whiflash.trajectories.index.lookup import LookupBatch, Odds
from whiflash.trajectories.index.part import MIN_PART_TOKENS, Part, RunSpan, digests
from whiflash.trajectories.record import TrajectoryRecord, require_namespace
from whiflash.trajectories.sealed.ledger import Run

MAX_PART_TOKENS = 262_144
BITE_TOKENS = 256
MAX_REPEATS = 8  # identical runs beyond this many teach nothing (facts: retrieval, 3.3)
LOCK_WAIT_S = 0.002  # rather no drafts from here in one step than a late step
BITE_PAUSE_S = 0.0001
PEAK_BYTES_PER_TOKEN = 128  # while growing; about 66 when full and trimmed
MIN_PARTS = 4  # so that eviction takes a quarter at most
MIN_BYTES = MIN_PARTS * MIN_PART_TOKENS * PEAK_BYTES_PER_TOKEN


def _lost(_: list[Run]) -> None:
    """Where there is no older tier to go to."""


class LiveIndex:
    """Earlier runs of one namespace. One thread adds, others look up.

    Adding holds the lock for at most BITE_TOKENS tokens at a time (under 0.1 ms); tables grow
    outside it. A lookup that cannot have the lock in time finds nothing and is counted.
    on_evicted: gets the runs that were given up, oldest first.
    """

    def __init__(
        self, namespace: str, max_bytes: int, on_evicted: Callable[[list[Run]], None] = _lost
    ) -> None:
        require_namespace(namespace)
        if max_bytes < MIN_BYTES:
            raise ConfigError(f"a live index needs at least {MIN_BYTES} bytes, got {max_bytes}")
        self.namespace = namespace
        self._max_bytes = max_bytes
        self._on_evicted = on_evicted
        self._part_tokens = min(MAX_PART_TOKENS, max_bytes // (MIN_PARTS * PEAK_BYTES_PER_TOKEN))
        self._lock = threading.Lock()
        self._parts: list[Part] = []
        self._copies: Counter[bytes] = Counter()
        self._num_readers = 0
        self._free_readers: list[int] = []
        self._reader_rows = 0
        self._homes: Homes = np.zeros(0, np.int64)
        self._is_suspended = False
        self.num_repeats = 0  # records left out as repeats
        self.num_evicted = 0  # records that were given up for newer ones
        self.num_busy = 0  # lookups that did not get the lock in time

    @property
    def num_tokens(self) -> int:
        return sum(len(part.automaton) for part in self._parts)

    @property
    def num_bytes(self) -> int:
        return sum(part.num_bytes for part in list(self._parts))

    # The writer's side.

    def add(self, record: TrajectoryRecord) -> None:
        """Indexes a record as one run, of which at most a part's size is kept. Raises ValueError
        on a record of another namespace."""
        if record.namespace != self.namespace:
            raise ValueError("a record of another namespace was given to this index")
        tokens = record.tokens[: self._part_tokens]
        digest = hashlib.blake2b(tokens.tobytes(), digest_size=16).digest()
        if len(tokens) == 0 or self._copies[digest] >= MAX_REPEATS:
            self.num_repeats += 1
            return
        part = self._part_with_room(len(tokens))
        start = len(part.automaton)
        for begin in range(0, len(tokens), BITE_TOKENS):
            self._append(part, tokens[begin : begin + BITE_TOKENS])
        with self._lock:
            part.automaton.end_run()
        part.note(record, digest, start)
        self._copies[digest] += 1
        self._keep_within_budget()

    def _part_with_room(self, num_tokens: int) -> Part:
        if self._parts:
            newest = self._parts[-1]
            if len(newest.automaton) + num_tokens <= self._part_tokens:
                return newest
            room = newest.trimmed()
            with self._lock:
                newest.take_room(room)
        part = Part.empty(0)
        with self._lock:
            part.matches = no_matches(self._reader_rows)
            self._parts.append(part)
        return part

    def _append(self, part: Part, bite: Ids) -> None:
        done = 0
        while done < len(bite):
            with self._lock:
                done += part.append(bite[done:])
            if done < len(bite):
                room = part.room_made(BITE_TOKENS)
                with self._lock:
                    part.take_room(room)
        if self._num_readers:
            time.sleep(BITE_PAUSE_S)  # locks are not fair: let a waiting step in

    def _keep_within_budget(self) -> None:
        while self.num_bytes > self._max_bytes and len(self._parts) > 1:
            self.evict_oldest()

    def evict_oldest(self) -> bool:
        """Gives up the oldest part; False if there is none. Writer's thread only."""
        with self._lock:
            if not self._parts:
                return False
            part = self._parts.pop(0)
        self._forget_copies(part.spans)
        self.num_evicted += len(part.spans)
        self._on_evicted(part.runs())
        return True

    def _forget_copies(self, spans: list[RunSpan]) -> None:
        self._copies.subtract(digests(spans))
        self._copies = +self._copies

    def delete(self, deletion: Deletion) -> None:
        """Forgets the covered runs. The parts that held them are gone at once; what else was in
        them comes back when it is indexed again. Writer's thread only."""
        self._remove(lambda span: deletion.covers_source(span.run_id, span.subject))

    def expire(self, time_ms: int) -> int:
        """Forgets the runs that ended before that time; how many. Writer's thread only."""
        return self._remove(lambda span: span.time_ms < time_ms)

    def _remove(self, is_unwanted: Callable[[RunSpan], bool]) -> int:
        num_gone = 0
        for part in list(self._parts):
            unwanted = list(filter(is_unwanted, part.spans))
            if not unwanted:
                continue
            with self._lock:
                place = self._parts.index(part)
                self._parts.remove(part)
            self._forget_copies(unwanted)
            num_gone += len(unwanted)
            if len(unwanted) < len(part.spans):
                self._insert(part.without(is_unwanted), place)
        self._keep_within_budget()
        return num_gone

    def _insert(self, part: Part, place: int) -> None:
        with self._lock:
            part.matches = no_matches(self._reader_rows)
            self._parts.insert(place, part)

    def clear(self) -> None:
        """Forgets everything. Writer's thread only."""
        with self._lock:
            self._parts.clear()
            self._copies.clear()

    def suspend(self) -> None:
        """Lookups find nothing until `resume`: something in here may have been deleted."""
        with self._lock:
            self._is_suspended = True

    def resume(self) -> None:
        """Lookups find what is in here."""
        with self._lock:
            self._is_suspended = False

    # The readers' side.

    @property
    def num_readers(self) -> int:
        """Open ones."""
        return self._num_readers

    def open_reader(self) -> int:
        """A number under which matches are kept between lookups."""
        with self._lock:
            self._num_readers += 1
            if not self._free_readers:
                self._add_reader_rows()
            return heappop(self._free_readers)

    def _add_reader_rows(self) -> None:
        old = self._reader_rows
        self._reader_rows = max(2 * old, 8)
        for number in range(old, self._reader_rows):
            heappush(self._free_readers, number)
        for part in self._parts:
            matches = no_matches(self._reader_rows)
            matches[: len(part.matches)] = part.matches
            part.matches = matches
        self._homes = np.pad(self._homes, (0, self._reader_rows - old), constant_values=NOBODY)

    def close_reader(self, reader: int) -> None:
        """The reader's matches are forgotten."""
        with self._lock:
            self._num_readers -= 1
            heappush(self._free_readers, reader)
            self._homes[reader] = NOBODY
            for part in self._parts:
                part.matches[reader] = no_matches(1)[0]

    def lookup(
        self, batch: LookupBatch, first: int, end: int, odds: Odds, min_survival: float,
        older: Sequence[Source] = (),
    ) -> bool:  # fmt: skip
        """Improves the drafts of rows [first, end) of `batch` by the longest match in earlier runs,
        those of `older` sources too, the newest of equal ones; False if the lock was not to be had
        in time."""
        if (not self._parts and not older) or self._is_suspended:
            return True
        if not self._lock.acquire(timeout=LOCK_WAIT_S):
            self.num_busy += 1
            draft_longest(older, self._homes, batch, first, end, odds, min_survival)
            return False
        try:
            if not self._is_suspended:
                sources = (*older, *self._parts)
                draft_longest(sources, self._homes, batch, first, end, odds, min_survival)
        finally:
            self._lock.release()
        return True

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken. Not while a record is being added."""
        with self._lock:
            copies: Counter[bytes] = Counter()
            for part in self._parts:
                part.check_integrity(self._reader_rows)
                assert len(part.automaton) <= self._part_tokens, len(part.automaton)
                copies.update(digests(part.spans))
            assert copies == +self._copies, "repeats are miscounted"
            assert len(self._free_readers) + self._num_readers == self._reader_rows
            # Readers that opened since the last run add a little to each part.
            num_bytes = sum(p.automaton.num_bytes + p.grams.nbytes for p in self._parts)
            assert len(self._parts) <= 1 or num_bytes <= self._max_bytes, num_bytes
