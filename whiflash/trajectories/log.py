"""The append-only log of trajectories that indexes are built from.

Memory, file and Redis logs stand behind the same interface. A reader keeps an opaque cursor; every
reader sees every entry of its namespace, in order. No method spans two namespaces but `wait`,
which tells nothing of what was written, and `namespaces`, which is for those who keep the store.

Logs are trimmed oldest first, so a tombstone outlives everything that it deletes: whoever reads
from START to the end has applied all deletions that matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from whiflash.trajectories.codec import Entry
from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.record import TrajectoryRecord

START = ""  # the cursor in front of the oldest entry that is still there
FLUSH_S = 5.0
DEFAULT_MAX_AGE_S = 30 * 86_400.0
DEFAULT_NAMESPACE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Entries behind a cursor, oldest first, and the cursor behind them.

    has_gap:      entries between the given cursor and the first one here are gone (trimmed, or
                  the log was restarted with less): start again from START to be sure of what is
                  built.
    is_end:       nothing was behind the cursor given here when it was read.
    del_epoch:    epoch of the namespace's last deletion when it was read. A reader that stands at
                  the end and has not met it has missed one.
    num_corrupt:  entries that were left out because their bytes are damaged.
    is_confirmed: False where a shared log could not be asked and these are local entries alone.
    """

    entries: tuple[Entry, ...]
    cursor: str
    has_gap: bool = False
    is_end: bool = True
    del_epoch: int = 0
    num_corrupt: int = 0
    is_confirmed: bool = True

    @property
    def records(self) -> tuple[TrajectoryRecord, ...]:
        """The entries that are no tombstones. Deletions must be applied too, in order."""
        return tuple(entry for entry in self.entries if isinstance(entry, TrajectoryRecord))


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much a log keeps. max_age_s and max_namespace_bytes hold per namespace, max_bytes in
    all; the oldest entries go first, of the largest namespace where the whole is too large."""

    max_age_s: float = DEFAULT_MAX_AGE_S
    max_namespace_bytes: int = DEFAULT_NAMESPACE_BYTES
    max_bytes: int = 8 * DEFAULT_NAMESPACE_BYTES


class LogLevel(StrEnum):
    """What new records and drafts can rely on."""

    SHARED = "shared"  # the store answers
    LOCAL = "local"  # it does not: what is known here goes on to be used and added to
    OFF = "off"  # nothing is taken


@dataclass(frozen=True, slots=True)
class LogStatus:
    """For the plan, health and metrics. `where` never holds a password.

    num_written counts records, num_failures writes and reads that failed; is_writable is False
    while writes fail, as on a full disk or server, which can still be read. Records older than
    max_age_s are not handed out; None where age does not count.
    """

    kind: str
    where: str
    level: LogLevel
    num_pending_bytes: int = 0
    num_written: int = 0
    num_dropped: int = 0
    num_failures: int = 0
    num_corrupt: int = 0
    last_error: str = ""
    is_writable: bool = True
    max_age_s: float | None = None


@runtime_checkable
class TrajectoryLog(Protocol):
    """Safe to use from several threads."""

    def append(self, record: TrajectoryRecord) -> None:
        """Takes a record. Does not wait for a disk or a network; under pressure the oldest
        records are given up and counted, for the text never depends on the log. Raises nothing
        but StoreClosedError after `close`."""

    def delete(self, deletion: Deletion) -> Deletion:
        """Makes sure that no reader sees the covered records again, and hands back the tombstone
        as logged. Waits for the store; raises StoreUnavailableError where it could not be told,
        and then the deletion has to be repeated."""

    def may_hold(self, deletion: Deletion) -> bool:
        """False only where it is certain that no record which the deletion covers is in the log,
        on its way to it, or with a reader that got it from there. Then a tombstone would say
        nothing. Raises StoreUnavailableError."""

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        """Up to `max_records` entries of `namespace` behind `cursor`; none if there is nothing.
        Raises ValueError on a cursor that this kind of log does not give out, and
        StoreUnavailableError."""

    def namespaces(self) -> tuple[str, ...]:
        """Those that hold entries, sorted; for export, statistics and deletion, never for drafts.
        Raises StoreUnavailableError."""

    def wait(self, cursors: Mapping[str, str], timeout_s: float) -> set[str]:
        """Returns as soon as some of the namespaces (keys) have entries behind their cursors:
        which ones; none on `wake`, `close` or after `timeout_s`."""

    def wake(self) -> None:
        """Ends a `wait` that is running, or else the next one."""

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Waits until what was appended before is written; False if that took longer."""

    @property
    def num_dropped(self) -> int:
        """Records given up so far to stay within the bounds."""

    def status(self) -> LogStatus: ...

    def close(self, timeout_s: float = FLUSH_S) -> None:
        """Writes out what is pending, for at most `timeout_s`, and refuses further records.
        Idempotent."""

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
