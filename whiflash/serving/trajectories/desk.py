"""Import, export, statistics and deletion for one caller at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from whiflash.core.errors import InvalidRequestError
from whiflash.serving.trajectories.conversation import Conversation, Json, TurnReader
from whiflash.serving.trajectories.stored_turn import RECORD_ID, read_turn, turn_json
from whiflash.trajectories.keeper import Added, Deleted, NamespaceStats, StoreKeeper
from whiflash.trajectories.log import TrajectoryLog
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.redaction import Redactor
from whiflash.trajectories.scope import OwnerOf, Scopes, Selection

Run = Conversation | Json
"""A recorded conversation, or a line of an export."""


@dataclass(frozen=True, slots=True)
class BadRun:
    """A run that was left out, by its place among those given."""

    index: int
    reason: str


class StoreDesk:
    """Blocks while it reads and writes; safe to use from several threads, which take turns.

    redactor:    for this desk alone.
    turn_reader: makes the reader of conversations when the first one comes. It may raise: then
                 they are refused and only exports can be taken in.
    """

    def __init__(
        self,
        log: TrajectoryLog,
        scopes: Scopes,
        redactor: Redactor,
        turn_reader: Callable[[], TurnReader],
    ) -> None:
        self._scopes = scopes
        self._make_reader = turn_reader
        self._reader: TurnReader | None = None
        self._keeper = StoreKeeper(log, scopes, redactor)
        self._lock = threading.Lock()

    def add(self, owner_of: OwnerOf, runs: Sequence[Run]) -> tuple[Added, list[BadRun]]:
        """Adds runs, each to the owner of what names its end user, and as a whole or not at all.
        Raises StoreUnavailableError."""
        exported: list[TrajectoryRecord] = []
        recorded: list[TrajectoryRecord] = []
        bad: list[BadRun] = []
        for index, run in enumerate(runs):
            try:
                records = self._records(owner_of, run)
            except InvalidRequestError as error:
                bad.append(BadRun(index, str(error)))
                continue
            has_id = not isinstance(run, Conversation) and RECORD_ID in run
            (exported if has_id else recorded).extend(records)
        with self._lock:
            added = self._keeper.add(exported, by_id=True)
            added.include(self._keeper.add(recorded))
            return added, bad

    def _records(self, owner_of: OwnerOf, run: Run) -> list[TrajectoryRecord]:
        if not isinstance(run, Conversation):
            return [read_turn(run, self._scopes, owner_of)]
        if self._reader is None:  # compiling a template takes longer than a conversation
            self._reader = self._make_reader()
        return self._reader.records(run, self._scopes, owner_of)

    def export(self, selection: Selection) -> Iterator[Json]:
        """Lines of JSON, as `add` takes them."""
        with self._lock:
            yield from map(turn_json, self._keeper.export(selection))

    def stats(self, selection: Selection | None) -> list[NamespaceStats]:
        """By namespace; None for all that the store has."""
        with self._lock:
            return self._keeper.stats(selection)

    def delete_run(self, selection: Selection, run_id: str) -> Deleted:
        """This and the others raise StoreUnavailableError; then they have to be repeated."""
        with self._lock:
            return self._keeper.delete_run(selection, run_id)

    def delete_subject(self, selection: Selection, subject: str) -> Deleted:
        with self._lock:
            return self._keeper.delete_subject(selection, subject)

    def delete_all(self, selection: Selection) -> Deleted:
        with self._lock:
            return self._keeper.delete_all(selection)
