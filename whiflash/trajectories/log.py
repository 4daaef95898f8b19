"""The append-only log of trajectories that indexes are built from.

Memory, file and Redis logs stand behind the same interface. A reader keeps an opaque cursor; every
reader sees every record of its namespace, in order. No method spans two namespaces but `wait`,
which tells nothing of what was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from whiflash.trajectories.record import TrajectoryRecord

START = ""  # the cursor in front of the oldest record that is still there


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Records behind a cursor, oldest first, and the cursor behind them.

    has_gap: records between the given cursor and the first one here were trimmed away; what a
    reader built so far is not wrong, only incomplete.
    """

    records: tuple[TrajectoryRecord, ...]
    cursor: str
    has_gap: bool = False


@runtime_checkable
class TrajectoryLog(Protocol):
    """Safe to use from several threads."""

    def append(self, record: TrajectoryRecord) -> None:
        """Takes a record. Does not wait for a disk or a network; under pressure the oldest
        records are given up and counted, for the text never depends on the log."""

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        """Up to `max_records` records of `namespace` behind `cursor`; none if there is nothing.
        Raises ValueError on a cursor that this log did not give out."""

    def wait(self, cursors: Mapping[str, str], timeout_s: float) -> bool:
        """Returns True as soon as one of the namespaces (keys) has records behind its cursor, or
        False on `wake`, `close` or after `timeout_s`."""

    def wake(self) -> None:
        """Ends a `wait` that is running, or else the next one."""

    @property
    def num_dropped(self) -> int:
        """Records given up so far to stay within the bounds."""

    def close(self) -> None:
        """Writes out what is pending and refuses further records. Idempotent."""

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
