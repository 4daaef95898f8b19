"""The index of one namespace: earlier runs in a live tier and, behind it, a sealed one."""

from __future__ import annotations

import time
from collections.abc import Callable

from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.index.live import LOCK_WAIT_S, LiveIndex
from whiflash.trajectories.index.lookup import LookupBatch, Odds
from whiflash.trajectories.index.sealed_source import SealedSource
from whiflash.trajectories.record import TrajectoryRecord, now_ms
from whiflash.trajectories.sealed.ledger import Run
from whiflash.trajectories.sealed.tier import SealedTier

EXPIRY_STEPS = 64  # a run outlives its time by one of so many parts of it
MAX_EXPIRY_STEP_S = 600.0
IDLE_S = 20.0  # a namespace that nobody drafts from is kept so long, and longer by its size:
IDLE_TOKENS_PER_S = 1_000.0  # reading it again takes under a hundredth of the time that it rested


class NamespaceIndex:
    """Implements the tailer's Sink for one namespace; others look up meanwhile.

    New runs are live; those that the live tier gives up are sealed in the background. Runs that
    ended more than `max_age_s` ago are in neither. `wake` is called when the sealed tier has work.
    """

    def __init__(
        self,
        namespace: str,
        max_live_bytes: int,
        max_age_s: float,
        sealed: SealedTier | None = None,
        wake: Callable[[SealedTier], None] = lambda _: None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.live = LiveIndex(namespace, max_live_bytes, self._seal)
        self.sealed = sealed
        self._max_age_s = max_age_s
        self._wake = wake
        self._clock_ms = clock_ms
        self._expired_at = self._used_at = time.monotonic()
        self._is_suspended = False
        self.num_expired = 0  # records that were too old
        self.num_busy = 0  # lookups that did not get the sealed tier in time

    @property
    def namespace(self) -> str:
        return self.live.namespace

    @property
    def num_tokens(self) -> int:
        """That can be drafted from."""
        return self.live.num_tokens + (self.sealed.num_tokens if self.sealed else 0)

    @property
    def num_bytes(self) -> int:
        """Memory of the live tier."""
        return self.live.num_bytes

    @property
    def num_sealed_bytes(self) -> int:
        """Of mapped files, most of them on disk, and what goes with them."""
        return self.sealed.num_bytes if self.sealed else 0

    def touch(self) -> None:
        """It is wanted just now."""
        self._used_at = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Nobody has it open, nor will soon: it may be given up, the log has its runs."""
        rested_s = time.monotonic() - self._used_at
        kept_s = IDLE_S + self.num_tokens / IDLE_TOKENS_PER_S
        return self.live.num_readers == 0 and rested_s > kept_s

    # The writer's side: one thread.

    def add(self, record: TrajectoryRecord) -> None:
        """Indexes a record, unless it is sealed already or too old. Raises ValueError on a record
        of another namespace, OSError."""
        if record.namespace != self.namespace:
            raise ValueError("a record of another namespace was given to this index")
        if record.time_ms < self._oldest_ms():
            self.num_expired += 1
            return
        if self.sealed is not None:
            self.sealed.load()
            if self.sealed.confirm(record.record_id):
                return
        self.live.add(record)

    def _seal(self, runs: list[Run]) -> None:
        if self.sealed is not None:
            self.sealed.take(runs)
            self._wake(self.sealed)

    def evict_oldest(self) -> bool:
        """Gives up the oldest part of the live tier; False if there is none."""
        return self.live.evict_oldest()

    def delete(self, deletion: Deletion) -> None:
        """Forgets what is covered, in both tiers, at once."""
        if self.sealed is not None:
            self.sealed.delete(deletion)
            self._wake(self.sealed)
        self.live.delete(deletion)

    def expire(self) -> None:
        """Forgets what is too old, every so often. To be called every few seconds."""
        now = time.monotonic()
        if now - self._expired_at < min(self._max_age_s / EXPIRY_STEPS, MAX_EXPIRY_STEP_S):
            return
        self._expired_at = now
        oldest_ms = self._oldest_ms()
        self.num_expired += self.live.expire(oldest_ms)
        if self.sealed is not None:
            self.num_expired += self.sealed.expire(oldest_ms)
            self._wake(self.sealed)

    def _oldest_ms(self) -> int:
        return self._clock_ms() - int(1e3 * self._max_age_s)

    def clear(self) -> None:
        """Forgets everything but what the log will be found to hold again."""
        self.live.clear()
        if self.sealed is not None:
            self.sealed.clear()

    def complete(self) -> None:
        """The log was read from start to end since `clear`, or since the beginning."""
        if self.sealed is not None:
            self.sealed.load()
            self.sealed.complete()
            self._wake(self.sealed)

    def suspend(self) -> None:
        """Lookups find nothing until `resume`: something in here may have been deleted."""
        self._is_suspended = True
        self.live.suspend()
        if self.sealed is not None:
            with self.sealed.lock:  # a lookup that is under way has ended then
                pass

    def resume(self) -> None:
        """Lookups find what is in here."""
        self.live.resume()
        self._is_suspended = False

    # The readers' side.

    def open_reader(self) -> int:
        """A number under which matches are kept between lookups."""
        return self.live.open_reader()

    def close_reader(self, reader: int) -> None:
        """The reader's matches are forgotten."""
        self.live.close_reader(reader)
        self.touch()

    def lookup(
        self, batch: LookupBatch, first: int, end: int, odds: Odds, min_survival: float
    ) -> bool:
        """Improves the drafts of rows [first, end) of `batch` by the longest match in earlier runs,
        the newest of equal ones; False if a tier was not to be had in time."""
        tier = self.sealed
        if tier is None or not tier.segments or self._is_suspended:
            return self.live.lookup(batch, first, end, odds, min_survival)
        if not tier.lock.acquire(timeout=LOCK_WAIT_S):
            self.num_busy += 1
            self.live.lookup(batch, first, end, odds, min_survival)
            return False
        try:
            older = () if self._is_suspended else [SealedSource(each) for each in tier.segments]
            return self.live.lookup(batch, first, end, odds, min_survival, older)
        finally:
            tier.lock.release()

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken. Not while a record is being added."""
        self.live.check_integrity()
        if self.sealed is not None:
            assert self.sealed.namespace == self.namespace, "tiers of two namespaces"
            self.sealed.check_integrity()
