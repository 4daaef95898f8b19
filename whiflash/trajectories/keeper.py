"""What those who keep a store do with it: add, hand out, count, delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from whiflash.trajectories import codec
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import StoreUnavailableError
from whiflash.trajectories.holdings import Holdings, KnownHoldings, held_records
from whiflash.trajectories.log import TrajectoryLog
from whiflash.trajectories.record import TrajectoryRecord, now_ms
from whiflash.trajectories.redaction import Redactor
from whiflash.trajectories.scope import DEFAULT_PROJECT, Owner, Scopes, Selection

FLUSH_BYTES = 2**20  # so that the log's queue never has to give anything up
FLUSH_S = 60.0


@dataclass(slots=True)
class Added:
    """turns: written now; known: were there before; masked: nothing was left of them once secrets
    were cut out; tokens: of the turns written; deleted: refused, as they were made before their
    run, end user or namespace was deleted here; expired: refused, older than the store keeps."""

    turns: int = 0
    known: int = 0
    masked: int = 0
    tokens: int = 0
    deleted: int = 0
    expired: int = 0

    def include(self, other: Added) -> None:
        """Adds another one's counts to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclass(frozen=True, slots=True)
class Deleted:
    """turns: were there, and are gone; namespaces: were told to forget, also some that held
    nothing where others may still write or draft it."""

    turns: int = 0
    namespaces: int = 0


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


class StoreKeeper:
    """For one thread. `redactor` is its own; `log` may be the one that an engine uses."""

    def __init__(self, log: TrajectoryLog, scopes: Scopes, redactor: Redactor | None) -> None:
        self._log = log
        self._scopes = scopes
        self._redactor = redactor
        self._known = KnownHoldings(log)

    def add(self, records: Iterable[TrajectoryRecord], *, by_id: bool = False) -> Added:
        """Writes what is not there yet and may be there, secrets cut out.

        by_id: their `record_id` says which record each is, as that of a turn which was exported
               does: others may say the same. Else what they say decides.
        Raises StoreUnavailableError; what was written till then stays, and a repetition adds the
        rest."""
        try:
            return self._add(records, by_id)
        except BaseException:
            self._known.forget()
            raise

    def _add(self, records: Iterable[TrajectoryRecord], by_id: bool) -> Added:
        added, num_bytes = Added(), 0
        held: dict[str, Holdings] = {}
        oldest_ms = self._oldest_ms()
        for record in records:
            there = held.get(record.namespace)
            if there is None:
                there = held[record.namespace] = self._known.of(record.namespace)
            if there.graveyard.covers(record):
                added.deleted += 1
            elif record.time_ms < oldest_ms:
                added.expired += 1
            else:
                num_bytes += self._write(record, there, by_id, added)
            if num_bytes > FLUSH_BYTES:
                num_bytes = 0
                self._flush()
        self._flush()
        return added

    def _oldest_ms(self) -> float:
        """What was made before that no reader would be given."""
        max_age_s = self._log.status().max_age_s
        return 0.0 if max_age_s is None else now_ms() - 1e3 * max_age_s

    def _write(self, record: TrajectoryRecord, there: Holdings, by_id: bool, added: Added) -> int:
        """Appends what is new of a record; its bytes."""
        stretches = [record] if self._redactor is None else self._redactor.split(record)
        new = [one for one in stretches if not there.has(one, by_content=not by_id)]
        for one in new:
            self._log.append(one)
            there.note(one)
        added.turns += bool(new)
        added.tokens += sum(len(one.tokens) for one in new)
        added.masked += not stretches
        added.known += bool(stretches) and not new
        return sum(one.num_bytes for one in new)

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

    def delete_run(self, selection: Selection, run_id: str) -> Deleted:
        """A run, in every namespace of the selection. This and the others raise
        StoreUnavailableError."""
        return self._bury(self._targets(selection), DeletionKind.RUN, run_id)

    def delete_subject(self, selection: Selection, subject: str) -> Deleted:
        """An end user: their own namespaces, and in the others the turns labelled with them."""
        own = Selection(selection.tenant, selection.project, subject)
        names = self._targets(selection)
        theirs = self._targets(own)
        whole = self._bury(theirs, DeletionKind.NAMESPACE, "")
        rest = self._bury(names - theirs, DeletionKind.SUBJECT, subject)
        return Deleted(whole.turns + rest.turns, whole.namespaces + rest.namespaces)

    def delete_all(self, selection: Selection) -> Deleted:
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

    def _bury(self, namespaces: Iterable[str], kind: DeletionKind, value: str) -> Deleted:
        """Tells every namespace where there may be something to forget."""
        num_turns = num_told = 0
        for name in sorted(namespaces):
            deletion = Deletion(name, kind, value)
            num_found = sum(map(deletion.covers, held_records(self._log, name)))
            if num_found or self._log.may_hold(deletion):
                self._log.delete(deletion)
                num_turns += num_found
                num_told += 1
        return Deleted(num_turns, num_told)


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
