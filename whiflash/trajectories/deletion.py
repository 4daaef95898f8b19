"""What has to be forgotten: the tombstones of the log."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import StrEnum

from whiflash.trajectories.record import TrajectoryRecord, require_namespace

MAX_REMEMBERED = 4096  # tombstones that a reader of one namespace keeps at hand


class DeletionKind(StrEnum):
    """By what records are chosen."""

    RUN = "run"
    SUBJECT = "subject"
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class Deletion:
    """A tombstone: every record of `namespace` in front of it that it covers is gone.

    value:   the run id or the subject; empty for the whole namespace.
    epoch:   the namespace's `del_epoch` that this deletion raises; 0 until a log has taken it.
    time_ms: when it was asked for. A record that was made before that and reaches the log behind
             the tombstone (it waited in some writer's queue) is covered too.
    Raises ValueError without a namespace, or without a value where the kind needs one.
    """

    namespace: str
    kind: DeletionKind
    value: str
    epoch: int = 0
    time_ms: int = 0

    def __post_init__(self) -> None:
        require_namespace(self.namespace)
        if (self.kind is DeletionKind.NAMESPACE) != (self.value == ""):
            raise ValueError(
                f"a deletion by {self.kind} takes "
                + ("no value" if self.kind is DeletionKind.NAMESPACE else "a value")
                + f", got {self.value!r}"
            )

    def covers(self, record: TrajectoryRecord) -> bool:
        """Whether a record in front of the tombstone is gone."""
        is_here = record.namespace == self.namespace
        return is_here and self.covers_source(record.run_id, record.subject)

    def covers_source(self, run_id: str, subject: str) -> bool:
        """As `covers`, for what is known to be in the tombstone's namespace."""
        if self.kind is DeletionKind.NAMESPACE:
            return True
        return self.value == (run_id if self.kind is DeletionKind.RUN else subject)

    def raised(self, last_epoch: int, time_ms: int) -> Deletion:
        """With an epoch behind `last_epoch` and, unless it has one, a time. Epochs follow the
        clock, so that they grow also where older tombstones were trimmed away."""
        return replace(self, epoch=max(last_epoch + 1, time_ms), time_ms=self.time_ms or time_ms)


class Graveyard:
    """The deletions that a reader of one namespace has seen, the oldest forgotten first."""

    def __init__(self) -> None:
        self._times: OrderedDict[tuple[DeletionKind, str], int] = OrderedDict()

    def bury(self, deletion: Deletion) -> None:
        key = (deletion.kind, deletion.value)
        self._times[key] = max(deletion.time_ms, self._times.pop(key, 0))
        if len(self._times) > MAX_REMEMBERED:
            self._times.popitem(last=False)

    def covers(self, record: TrajectoryRecord) -> bool:
        """Whether the record, which came behind the tombstone, had been made before it."""
        if not self._times:
            return False
        keys = (
            (DeletionKind.RUN, record.run_id),
            (DeletionKind.SUBJECT, record.subject),
            (DeletionKind.NAMESPACE, ""),
        )
        return any(record.time_ms <= self._times.get(key, -1) for key in keys)
