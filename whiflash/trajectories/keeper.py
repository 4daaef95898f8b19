"""What those who keep a store do with it: add, hand out, count, delete."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from whiflash.trajectories import codec
from whiflash.trajectories.codec import Entry
from whiflash.trajectories.deletion import Deletion, DeletionKind, Graveyard
from whiflash.trajectories.errors import StoreUnavailableError
from whiflash.trajectories.log import START, TrajectoryLog
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.redaction import Redactor
from whiflash.trajectories.scope import DEFAULT_PROJECT, Owner, Scopes, Selection

FLUSH_BYTES = 2**20  # so that the log's queue never has to give anything up
FLUSH_S = 60.0
READ_RECORDS = 256
MAX_RESTARTS = 8
MAX_KNOWN_S = 60.0


@dataclass(slots=True)
class Added:
    """turns: written now; known: were there before; masked: nothing was left of them once secrets
    were cut out; tokens: of the turns written."""

    turns: int = 0
    known: int = 0
    masked: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class NamespaceStats:
    """Of one namespace. Times are Unix milliseconds, 0 where it is empty."""

    namespace: str
    num_records: int = 0
    num_runs: int = 0
    num_tokens: int = 0
    num_bytes: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0


def content_id(record: TrajectoryRecord) -> int:
    """A `record_id` by what the record says, so that a second import adds nothing."""
    head = f"{record.namespace}\0{record.run_id}\0{record.segment}\0{record.part}\0"
    digest = hashlib.blake2b(head.encode("utf-8", "surrogatepass"), digest_size=8)
    digest.update(record.tokens.tobytes())
    return int.from_bytes(digest.digest(), "little") | 1


def held_records(log: TrajectoryLog, namespace: str) -> list[TrajectoryRecord]:
    """All that is in a namespace now, oldest first, copies and deleted ones left out.
    Raises StoreUnavailableError."""
    return _read_all(log, namespace)[0]


def _read_all(log: TrajectoryLog, namespace: str) -> tuple[list[TrajectoryRecord], str]:
    """With the cursor behind them."""
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
        return list(records.values()), found[1]
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


class KnownIds:
    """What namespaces hold, by `record_id` and `content_id`. The log is asked for news alone, so
    that a long import does not read the store anew with every batch; but for once in MAX_KNOWN_S,
    since what a log trims it does not tell."""

    def __init__(self, log: TrajectoryLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def of(self, namespace: str) -> set[int]:
        """All that is there now; what the caller adds to it stays. Raises
        StoreUnavailableError."""
        oldest = self._clock() - MAX_KNOWN_S
        self._known = {name: one for name, one in self._known.items() if one.read_at > oldest}
        known = self._known.get(namespace)
        news = None if known is None else _read_on(self._log, namespace, known.cursor)
        if known is None or news is None or any(isinstance(one, Deletion) for one in news[0]):
            known = self._known[namespace] = _Known(self._clock())
            entries: Sequence[Entry]
            entries, known.cursor = _read_all(self._log, namespace)
        else:
            entries, known.cursor = news
        for entry in entries:
            if isinstance(entry, TrajectoryRecord):
                known.ids.update((entry.record_id, content_id(entry)))
        return known.ids

    def forget(self) -> None:
        """What was added to the ids may never have reached the log."""
        self._known.clear()


@dataclass(slots=True)
class _Known:
    read_at: float
    cursor: str = START
    ids: set[int] = field(default_factory=set)


class StoreKeeper:
    """For one thread. `redactor` is its own; `log` may be the one that an engine uses."""

    def __init__(self, log: TrajectoryLog, scopes: Scopes, redactor: Redactor | None) -> None:
        self._log = log
        self._scopes = scopes
        self._redactor = redactor
        self._known = KnownIds(log)

    def add(self, records: Iterable[TrajectoryRecord]) -> Added:
        """Writes what is not there yet, secrets cut out. Raises StoreUnavailableError; what was
        written till then stays, and a repetition adds the rest."""
        try:
            return self._add(records)
        except BaseException:
            self._known.forget()
            raise

    def _add(self, records: Iterable[TrajectoryRecord]) -> Added:
        added, num_bytes = Added(), 0
        known: dict[str, set[int]] = {}
        for record in records:
            stretches = [record] if self._redactor is None else self._redactor.split(record)
            new = [one for one in stretches if self._is_new(one, known)]
            for one in new:
                self._log.append(one)
                num_bytes += one.num_bytes
            added.turns += bool(new)
            added.tokens += sum(len(one.tokens) for one in new)
            added.masked += not stretches
            added.known += bool(stretches) and not new
            if num_bytes > FLUSH_BYTES:
                num_bytes = 0
                self._flush()
        self._flush()
        return added

    def _is_new(self, record: TrajectoryRecord, known: dict[str, set[int]]) -> bool:
        ids = known.get(record.namespace)
        if ids is None:
            ids = known[record.namespace] = self._known.of(record.namespace)
        own = (record.record_id, content_id(record))
        is_new = ids.isdisjoint(own)
        ids.update(own)
        return is_new

    def _flush(self) -> None:
        if not self._log.flush(FLUSH_S):
            raise StoreUnavailableError(
                "the store takes nothing just now; import again later, what is there is not added "
                "twice"
            )

    def namespaces(self, selection: Selection | None) -> list[str]:
        """Those of the selection that hold something; None selects all that the store has."""
        self._log.flush(FLUSH_S)
        found = self._log.namespaces()
        if selection is None:
            return list(found)
        return [name for name in found if self._scopes.selects(selection, name)]

    def export(self, selection: Selection) -> Iterator[TrajectoryRecord]:
        """Every record of the selection, one namespace after the other."""
        for namespace in self.namespaces(selection):
            yield from held_records(self._log, namespace)

    def stats(self, selection: Selection | None) -> list[NamespaceStats]:
        """By namespace, empty ones left out; reads all of them."""
        names = self.namespaces(selection)
        found = (_counted(name, held_records(self._log, name)) for name in names)
        return [one for one in found if one.num_records]

    def delete_run(self, selection: Selection, run_id: str) -> int:
        """A run, in every namespace of the selection; the number of namespaces told."""
        return self._bury(self._targets(selection), DeletionKind.RUN, run_id)

    def delete_subject(self, selection: Selection, subject: str) -> int:
        """An end user: their own namespaces, and in the others the turns labelled with them."""
        own = Selection(selection.tenant, selection.project, subject)
        names = self._targets(selection)
        theirs = self._targets(own)
        told = self._bury(theirs, DeletionKind.NAMESPACE, "")
        return told + self._bury(names - theirs, DeletionKind.SUBJECT, subject)

    def delete_all(self, selection: Selection) -> int:
        """Everything of a tenant, a project or an end user."""
        return self._bury(self._targets(selection), DeletionKind.NAMESPACE, "")

    def _targets(self, selection: Selection) -> set[str]:
        """With the namespace that writers may just be about to begin."""
        found = set(self.namespaces(selection))
        if not self._scopes.can_name:
            return found
        project = DEFAULT_PROJECT if selection.project is None else selection.project
        owner = Owner(selection.tenant, project, selection.subject or "")
        return found | {self._scopes.namespace(owner)}

    def _bury(self, namespaces: Iterable[str], kind: DeletionKind, value: str) -> int:
        names = sorted(namespaces)
        for name in names:
            self._log.delete(Deletion(name, kind, value))
        return len(names)


def _counted(namespace: str, records: Sequence[TrajectoryRecord]) -> NamespaceStats:
    times = [record.time_ms for record in records]
    return NamespaceStats(
        namespace,
        len(records),
        len({record.run_id for record in records if record.run_id}),
        sum(len(record.tokens) for record in records),
        sum(len(codec.encode(record)) for record in records),
        min(times, default=0),
        max(times, default=0),
    )
