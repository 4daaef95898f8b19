"""What a log holds just now, as those who keep it have to know: what is there, what was deleted."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whiflash.trajectories.codec import Entry
from whiflash.trajectories.deletion import Deletion, Graveyard
from whiflash.trajectories.errors import StoreUnavailableError
from whiflash.trajectories.log import START, TrajectoryLog
from whiflash.trajectories.record import TrajectoryRecord

READ_RECORDS = 256
MAX_RESTARTS = 8
MAX_KNOWN_S = 60.0


def content_id(record: TrajectoryRecord) -> int:
    """A `record_id` by what the record says, the same in every store, so that a second import of
    a recorded run adds nothing."""
    head = f"{record.run_id}\0{record.segment}\0{record.part}\0"
    digest = hashlib.blake2b(head.encode("utf-8", "surrogatepass"), digest_size=8)
    digest.update(record.tokens.tobytes())
    return int.from_bytes(digest.digest(), "little") | 1


def held_records(log: TrajectoryLog, namespace: str) -> list[TrajectoryRecord]:
    """All that is in a namespace now, oldest first, copies and deleted ones left out.
    Raises StoreUnavailableError."""
    return _read_all(log, namespace)[0]


def _read_all(log: TrajectoryLog, namespace: str) -> tuple[list[TrajectoryRecord], str, Graveyard]:
    """With the cursor behind them, and what was deleted."""
    for _ in range(MAX_RESTARTS):
        records: dict[int, TrajectoryRecord] = {}
        graveyard = Graveyard()
        found = _read_on(log, namespace, START)
        if found is None:
            continue
        for entry in found[0]:
            if isinstance(entry, Deletion):
                graveyard.bury(entry)
                records = {n: r for n, r in records.items() if not entry.covers(r)}
            elif not graveyard.covers(entry):
                records.setdefault(entry.record_id, entry)
        return list(records.values()), found[1], graveyard
    raise StoreUnavailableError("the store was trimmed while it was read; try again")


def _read_on(log: TrajectoryLog, namespace: str, cursor: str) -> tuple[Sequence[Entry], str] | None:
    """All entries behind the cursor and the cursor behind them; None where some went missing
    meanwhile. Raises StoreUnavailableError."""
    entries: list[Entry] = []
    is_end = False
    while not is_end:
        batch = log.read(namespace, cursor, READ_RECORDS)
        if batch.has_gap:
            return None
        if batch.is_end and not batch.is_confirmed:
            raise StoreUnavailableError("the store does not answer; try again later")
        entries += batch.entries
        cursor, is_end = batch.cursor, batch.is_end
    return entries, cursor


@dataclass(slots=True)
class Holdings:
    """Of one namespace, as last read. `contents` has the `content_id` of every record: a running
    engine gives others as `record_id`."""

    read_at: float
    cursor: str = START
    record_ids: set[int] = field(default_factory=set)
    contents: set[int] = field(default_factory=set)
    graveyard: Graveyard = field(default_factory=Graveyard)

    def has(self, record: TrajectoryRecord, *, by_content: bool) -> bool:
        """Whether this very record is there, or with `by_content` one that says the same."""
        if record.record_id in self.record_ids:
            return True
        return by_content and content_id(record) in self.contents

    def note(self, record: TrajectoryRecord) -> None:
        """It is there now."""
        self.record_ids.add(record.record_id)
        self.contents.add(content_id(record))


class KnownHoldings:
    """The log is asked for news alone, so that a long import does not read the store anew with
    every batch; but for once in MAX_KNOWN_S, since what a log trims it does not tell."""

    def __init__(self, log: TrajectoryLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._known: dict[str, Holdings] = {}

    def of(self, namespace: str) -> Holdings:
        """All that is there now; what the caller notes in it stays. Raises
        StoreUnavailableError."""
        oldest = self._clock() - MAX_KNOWN_S
        self._known = {name: one for name, one in self._known.items() if one.read_at > oldest}
        known = self._known.get(namespace)
        news = None if known is None else _read_on(self._log, namespace, known.cursor)
        if known is None or news is None or any(isinstance(one, Deletion) for one in news[0]):
            known = self._known[namespace] = Holdings(self._clock())
            entries: Sequence[Entry]
            entries, known.cursor, known.graveyard = _read_all(self._log, namespace)
        else:
            entries, known.cursor = news
        for entry in entries:
            if isinstance(entry, TrajectoryRecord):
                known.note(entry)
        return known

    def forget(self) -> None:
        """What was noted may never have reached the log."""
        self._known.clear()
