"""One piece of the builder's work: runs and segments that become one segment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.sealed.file import SegmentData
from whiflash.trajectories.sealed.ledger import Ledger, Mask, Run
from whiflash.trajectories.sealed.segment import Segment
from whiflash.trajectories.sealed.text import DEAD, LIVE
from whiflash.trajectories.sealed.volume import part_of_runs, sealed_data, without_repeats

MAX_SEGMENTS = 4  # each costs every lookup a search


class Waiting:
    """Runs that are to be sealed, oldest first; over `max_tokens` the oldest are dropped."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._runs: deque[Run] = deque()
        self._num_tokens = 0
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def num_bytes(self) -> int:
        return 4 * self._num_tokens

    def extend(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._runs.append(run)
            self._num_tokens += len(run.tokens)
        while self._num_tokens > self._max_tokens:
            self._num_tokens -= len(self._runs.popleft().tokens)
            self.num_dropped += 1

    def take(self, max_tokens: int) -> tuple[Run, ...]:
        """The oldest ones of so many tokens together, one at least; cut off where it has more."""
        taken: list[Run] = []
        num_tokens = 0
        while self._runs and num_tokens + len(self._runs[0].tokens) <= max_tokens:
            taken.append(self._runs.popleft())
            num_tokens += len(taken[-1].tokens)
        if not taken and self._runs:
            taken.append(self._runs.popleft())
            num_tokens = len(taken[0].tokens)
        self._num_tokens -= num_tokens
        return tuple(taken)

    def remove(self, is_unwanted: Callable[[Run], bool]) -> int:
        """How many were removed."""
        kept = deque(run for run in self._runs if not is_unwanted(run))
        num_gone = len(self._runs) - len(kept)
        self._runs = kept
        self._num_tokens = sum(len(run.tokens) for run in kept)
        return num_gone

    def check_integrity(self) -> None:
        assert self._num_tokens == sum(len(run.tokens) for run in self._runs) <= self._max_tokens


def segments_to_rewrite(segments: Sequence[Segment], max_tokens: int) -> tuple[Segment, ...]:
    """One that holds what has to go, else the two neighbours of fewest tokens where there are more
    than MAX_SEGMENTS; () if neither is there."""
    for segment in segments:
        if segment.must_compact:
            return (segment,)
    if len(segments) <= MAX_SEGMENTS:
        return ()
    smallest = min(pairwise(segments), key=lambda pair: pair[0].num_tokens + pair[1].num_tokens)
    is_small = smallest[0].num_tokens + smallest[1].num_tokens <= max_tokens
    return smallest if is_small else ()


class Job:
    """`sources` and `runs` become one segment; either may be empty. `ledgers` are those of the
    sources and that of the runs, there once it is built."""

    def __init__(self, sources: tuple[Segment, ...], runs: tuple[Run, ...]) -> None:
        self.sources = sources
        self._runs = runs
        self._masks: list[Callable[[Ledger], Mask]] = []
        self._kept: list[Mask] = []
        self._ledgers = [segment.ledger for segment in sources]

    def mask_runs(self, masked: Callable[[Ledger], Mask]) -> None:
        """The runs, not those of the sources, that `masked` tells shall be DEAD when installed.
        Under the tier's lock."""
        self._masks.append(masked)

    def built(self) -> SegmentData | None:
        """Without the tier's lock. None if nothing is left."""
        parts = [segment.part() for segment in self.sources]
        if self._runs:
            parts.append(part_of_runs(self._runs))
            self._ledgers.append(Ledger(parts[-1][0], LIVE))
        self._kept = without_repeats(parts)
        if not any(mask.any() for mask in self._kept):
            return None
        wanted = [
            (directory, text, mask)
            for (directory, text, _), mask in zip(parts, self._kept, strict=True)
        ]
        return sealed_data(wanted, tuple(segment.number for segment in self.sources))

    def states(self) -> npt.NDArray[np.uint8]:
        """Of the runs that the built segment has, as they are now. Under the tier's lock."""
        if self._runs:
            for masked in self._masks:
                self._ledgers[-1].set_states(masked(self._ledgers[-1]), DEAD)
        pairs = zip(self._ledgers, self._kept, strict=True)
        return np.concatenate([ledger.states[mask] for ledger, mask in pairs])
