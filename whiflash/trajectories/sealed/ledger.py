"""Which runs a sealed text holds, in what state each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.sealed.text import DEAD, LIVE, UNCONFIRMED

Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One record on its way into a segment. tokens: int32 [n], n > 0."""

    record_id: int
    time_ms: int
    run_id: str
    subject: str
    tokens: Ids


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """Columns of R runs, oldest first.

    record_ids: uint64 [R]; times_ms: int64 [R]; ends: int32 [R], tokens up to the end of each;
    run_names, subject_names: int32 [R], places in `names`.
    """

    record_ids: npt.NDArray[np.uint64]
    times_ms: npt.NDArray[np.int64]
    ends: Ids
    run_names: Ids
    subject_names: Ids
    names: tuple[str, ...]

    @classmethod
    def of_runs(cls, runs: Sequence[Run]) -> Directory:
        places: dict[str, int] = {}
        run_names = [places.setdefault(run.run_id, len(places)) for run in runs]
        subject_names = [places.setdefault(run.subject, len(places)) for run in runs]
        return cls(
            np.array([run.record_id for run in runs], np.uint64),
            np.array([run.time_ms for run in runs], np.int64),
            np.cumsum([len(run.tokens) for run in runs], dtype=np.int32),
            np.array(run_names, np.int32),
            np.array(subject_names, np.int32),
            tuple(places),
        )

    @classmethod
    def joined(cls, parts: Sequence[tuple[Directory, Mask]]) -> Directory:
        """Of the kept runs of several, one behind the other."""
        places: dict[str, int] = {}
        run_names, subject_names = [], []
        for directory, is_kept in parts:
            wanted = np.zeros(len(directory.names), bool)
            wanted[directory.run_names[is_kept]] = True
            wanted[directory.subject_names[is_kept]] = True
            moved = np.array(
                [
                    places.setdefault(name, len(places)) if is_wanted else 0
                    for name, is_wanted in zip(directory.names, wanted.tolist(), strict=True)
                ],
                np.int32,
            )
            run_names.append(moved[directory.run_names[is_kept]])
            subject_names.append(moved[directory.subject_names[is_kept]])
        return cls(
            np.concatenate([d.record_ids[kept] for d, kept in parts]),
            np.concatenate([d.times_ms[kept] for d, kept in parts]),
            np.cumsum(np.concatenate([d.lengths[kept] for d, kept in parts]), dtype=np.int32),
            np.concatenate(run_names),
            np.concatenate(subject_names),
            tuple(places),
        )

    def __len__(self) -> int:
        """Runs."""
        return len(self.ends)

    @property
    def lengths(self) -> Ids:
        """int32 [R], tokens of each run."""
        return np.diff(self.ends, prepend=np.int32(0))

    @property
    def num_tokens(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def num_bytes(self) -> int:
        columns = (self.record_ids, self.times_ms, self.ends, self.run_names, self.subject_names)
        return sum(column.nbytes for column in columns) + sum(map(len, self.names))

    def covered(self, deletion: Deletion) -> Mask:
        """bool [R]: the runs that a tombstone behind all of them covers."""
        is_run = [deletion.covers_source(name, "") for name in self.names]
        is_subject = [deletion.covers_source("", name) for name in self.names]
        by_run = np.array(is_run, bool)[self.run_names]
        by_subject = np.array(is_subject, bool)[self.subject_names]
        return np.asarray(by_run | by_subject, np.bool_)


class Ledger:
    """A directory and the state of every run. The owner sees to it that nobody reads meanwhile.

    states: uint8 [R], LIVE, UNCONFIRMED or DEAD. A run that is DEAD stays so.
    """

    def __init__(self, directory: Directory, state: int) -> None:
        self.directory = directory
        self.states = np.full(len(directory), state, np.uint8)
        self.num_masked = 0 if state == LIVE else len(directory)
        self._by_id = np.argsort(directory.record_ids, kind="stable").astype(np.int32)
        self._sorted_ids = directory.record_ids[self._by_id]
        own = self.states.nbytes + self._by_id.nbytes + self._sorted_ids.nbytes
        self.num_bytes = own + directory.num_bytes
        """Memory, by estimate."""

    @property
    def num_live_tokens(self) -> int:
        return int(self.directory.lengths[self.states == LIVE].sum())

    @property
    def is_useless(self) -> bool:
        """Nothing in it can be used again."""
        return bool((self.states == DEAD).all())

    def dead_share(self) -> float:
        """Of the tokens."""
        dead = int(self.directory.lengths[self.states == DEAD].sum())
        return dead / max(self.directory.num_tokens, 1)

    def find(self, record_id: int) -> int:
        """The run of a record, or -1."""
        wanted = np.uint64(record_id)
        place = int(np.searchsorted(self._sorted_ids, wanted))
        if place < len(self._sorted_ids) and self._sorted_ids[place] == wanted:
            return int(self._by_id[place])
        return -1

    def set_states(self, mask: Mask, state: int) -> int:
        """The runs of the mask that are not DEAD; how many."""
        changed = mask & (self.states != DEAD)
        self.states[changed] = state
        self.num_masked = int(np.count_nonzero(self.states != LIVE))
        return int(np.count_nonzero(changed))

    def take_states(self, states: npt.NDArray[np.uint8]) -> None:
        """uint8 [R], as they were known elsewhere."""
        self.states[:] = states
        self.num_masked = int(np.count_nonzero(self.states != LIVE))

    def confirm(self, run: int) -> bool:
        """The log still holds the run; False if it is dead all the same."""
        if self.states[run] == DEAD:
            return False
        if self.states[run] == UNCONFIRMED:
            self.states[run] = LIVE
            self.num_masked -= 1
        return True

    def unconfirmed(self) -> Mask:
        """bool [R]."""
        return np.asarray(self.states == UNCONFIRMED, np.bool_)

    def older_than(self, time_ms: int) -> Mask:
        """bool [R]."""
        return np.asarray(self.directory.times_ms < time_ms, np.bool_)

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        assert self.num_masked == np.count_nonzero(self.states != LIVE), "masks are miscounted"
        assert (self.directory.lengths > 0).all(), "an empty run"
        assert set(np.unique(self.states).tolist()) <= {LIVE, UNCONFIRMED, DEAD}
