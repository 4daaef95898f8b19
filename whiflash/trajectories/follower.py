"""What a reader of one namespace must keep in mind between two reads of the log."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from whiflash.trajectories.codec import Entry
from whiflash.trajectories.deletion import Deletion, Graveyard
from whiflash.trajectories.log import START, LogBatch
from whiflash.trajectories.record import TrajectoryRecord

MAX_SEEN = 65_536
RELOAD_PAUSE_S = 1.0  # a gap right behind a reload is lived with
CORRUPT_PAUSE_S = 600.0  # damage that a reload did not heal is on the log's side


class Sink(Protocol):
    """What is built from a namespace's log. Called on one thread."""

    @property
    def namespace(self) -> str: ...

    def add(self, record: TrajectoryRecord) -> None: ...

    def delete(self, deletion: Deletion) -> None:
        """Forgets every record added so far that the deletion covers, at once."""

    def clear(self) -> None:
        """Forgets everything: it is built anew."""

    def complete(self) -> None:
        """All that the log holds was added since `clear`, or since the beginning: what the sink
        knows from elsewhere the log has lost."""

    def suspend(self) -> None:
        """Must not be used until `resume`: it may hold what was deleted. Idempotent."""

    def resume(self) -> None: ...


class Follower:
    """Applies batches to a sink; decides when to start again and when to keep the sink closed.

    The sink is closed (suspended) from a start until the log's end was reached, while the log
    tells of a deletion that has not been met, and when a log that was reached once has not been
    for `max_unconfirmed_s`. A log that was never reached cannot have brought anything that others
    deleted; what this process wrote itself goes on to be used.
    """

    def __init__(
        self,
        sink: Sink,
        max_unconfirmed_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.namespace = sink.namespace
        self.cursor = START
        self.is_ready = False
        self.num_gaps = 0
        self.num_reloads = 0
        self.num_copies = 0
        self._sink = sink
        self._max_unconfirmed_s = max_unconfirmed_s
        self._clock = clock
        self._graveyard = Graveyard()
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._applied_epoch = 0
        self._is_from_start = True
        self._is_untouched = True  # nothing of a shared log is in the sink
        self._confirmed_at = clock()
        self._reloaded_at = self._healed_at = -float("inf")
        sink.suspend()

    def accept(self, batch: LogBatch) -> tuple[Entry, ...] | None:
        """The entries to apply, in order, before `finish`; None where the sink was emptied and
        has to be built anew from `cursor`."""
        self.num_gaps += batch.has_gap
        if self._must_reload(batch):
            self._reload()
            return None
        if batch.is_confirmed:
            self._is_untouched = False
            if batch.del_epoch > self._applied_epoch:
                self._sink.suspend()
        return batch.entries

    def _must_reload(self, batch: LogBatch) -> bool:
        now = self._clock()
        if batch.has_gap and (batch.cursor == START or now - self._reloaded_at > RELOAD_PAUSE_S):
            return True
        is_damaged = batch.num_corrupt > 0 and now - self._healed_at > CORRUPT_PAUSE_S
        if is_damaged:
            self._healed_at = now
        return is_damaged

    def _reload(self) -> None:
        self._sink.suspend()
        self._sink.clear()
        self.cursor = START
        self.is_ready = False
        self.num_reloads += 1
        self._reloaded_at = self._clock()
        self._seen.clear()
        self._applied_epoch = 0
        self._is_from_start = True

    def apply(self, entry: Entry) -> None:
        """Copies of a record, and records that reach the log behind their own deletion, are left
        out."""
        if isinstance(entry, Deletion):
            self._graveyard.bury(entry)
            self._applied_epoch = max(self._applied_epoch, entry.epoch)
            self._sink.delete(entry)
        elif entry.record_id in self._seen:
            self.num_copies += 1
        elif not self._graveyard.covers(entry):
            self._seen[entry.record_id] = None
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)
            self._sink.add(entry)

    def finish(self, batch: LogBatch) -> bool:
        """After `accept` and `apply`; True once the log's end is reached."""
        self.cursor = batch.cursor
        if not batch.is_end:
            return False
        if not batch.is_confirmed:
            self.note_unconfirmed()
            return True
        return self._note_confirmed_end(batch.del_epoch)

    def _note_confirmed_end(self, del_epoch: int) -> bool:
        self._confirmed_at = self._clock()
        if self._applied_epoch < del_epoch and not self._is_from_start:
            self._reload()  # a tombstone was missed: the log no longer holds what it covers
            return False
        # From the start to the end, every deletion that still matters was met.
        self._applied_epoch = max(self._applied_epoch, del_epoch)
        if self._is_from_start:
            self._sink.complete()
        self._is_from_start = False
        self.is_ready = True
        self._sink.resume()
        return True

    def note_unconfirmed(self) -> None:
        """The shared log could not be read."""
        if self._is_untouched:
            self._sink.resume()
        elif self._clock() - self._confirmed_at > self._max_unconfirmed_s:
            self._sink.suspend()
            self.is_ready = False
