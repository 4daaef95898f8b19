"""The thread that carries log entries into indexes, off the engine's thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from whiflash.trajectories.follower import Follower, Sink
from whiflash.trajectories.log import FLUSH_S, TrajectoryLog

logger = logging.getLogger(__name__)
WAIT_S = 0.5  # how long a log is trusted to tell of news by itself
PASS_PAUSE = 20.0  # times what a pass over all namespaces took: there may be thousands of them
MAX_PAUSE_S = 5.0  # so that one which had much to read does not make the next ones late
MAX_LOGGED_FAILURES = 10
RETRY_S = 0.2  # after a log failed to answer
DEFAULT_MAX_UNCONFIRMED_S = 900.0
READ_RECORDS = 64


class Tailer:
    """Reads every followed namespace from the log's start and goes on for ever.

    A log that fails is asked again later, a record that cannot be indexed is left out; both are
    counted in `num_failures`. Drafts get older or fewer, nothing else happens. A sink is suspended
    where a deletion may have been missed (see Follower): also when a shared log has not been
    reached for `max_unconfirmed_s`. `after_record` and `after_pass` are called on the thread, the
    latter about once in WAIT_S, or as seldom as makes passes take a small part of the time.

    A namespace is read when it is new, when the log tells of news in it, and in every pass.
    """

    def __init__(
        self,
        log: TrajectoryLog,
        after_record: Callable[[], None],
        max_unconfirmed_s: float = DEFAULT_MAX_UNCONFIRMED_S,
        after_pass: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._after_record = after_record
        self._after_pass = after_pass
        self._max_unconfirmed_s = max_unconfirmed_s
        self._changed = threading.Condition()
        self._followed: dict[str, Follower] = {}
        self._new: list[Follower] = []  # followed since the last turn
        self._told: set[str] = set()  # the log told of news in them since then
        self._is_pass_due = True
        self._passes_begun = 0
        self._pass_begun_s = 0.0
        self._pass_due_s = 0.0  # time.monotonic()
        self._passes_done = 0
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self.num_failures = 0

    def follow(self, sink: Sink) -> None:
        """Starts filling `sink` from the log; the first call starts the thread."""
        with self._changed:
            if self._is_stopping:
                raise ValueError("the trajectory indexes are closed")
            follower = Follower(sink, self._max_unconfirmed_s)
            self._followed[sink.namespace] = follower
            self._new.append(follower)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="whiflash-trajectories", daemon=True
                )
                self._thread.start()
        self._log.wake()

    def forget(self, namespace: str) -> None:
        """Stops filling the sink of `namespace`."""
        with self._changed:
            self._followed.pop(namespace, None)

    @property
    def ready_shared(self) -> bool:
        """Whether every followed namespace holds all that the log held when it was last read."""
        with self._changed:
            return all(follower.is_ready for follower in self._followed.values())

    @property
    def num_gaps(self) -> int:
        """Times that entries went missing between two reads."""
        with self._changed:
            return sum(follower.num_gaps for follower in self._followed.values())

    @property
    def num_reloads(self) -> int:
        """Times that a sink was emptied and filled from the log's start again."""
        with self._changed:
            return sum(follower.num_reloads for follower in self._followed.values())

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Waits until all that was appended when this was called is indexed; False if that
        took longer."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            if self._thread is None:
                return True
        if not self._log.flush(timeout_s):
            return False
        with self._changed:
            target = self._passes_begun + 1
            self._is_pass_due = True
        self._log.wake()
        with self._changed:
            left_s = max(deadline - time.monotonic(), 0.0)
            return self._changed.wait_for(lambda: self._passes_done >= target, left_s)

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            thread = self._thread
        self._log.wake()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            followers, is_pass = self._due()
            num_complete = sum(self._catch_up(follower) for follower in followers)
            is_complete = num_complete == len(followers)
            if is_pass:
                self._tidy()
                self._note_pass(is_complete)
            if not (is_complete and self._wait()):
                with self._changed:
                    self._is_pass_due = True
                    self._changed.wait_for(lambda: self._is_stopping, RETRY_S)

    def _due(self) -> tuple[list[Follower], bool]:
        """Who is to be read, and whether that is a pass over all. A new namespace, or news in one,
        is no reason to read all others: many begin at once where every caller has their own."""
        with self._changed:
            asked = [*self._new, *filter(None, map(self._followed.get, self._told))]
            self._new, self._told = [], set()
            now_s = time.monotonic()
            if not self._is_pass_due and now_s < self._pass_due_s:
                return asked, False
            self._is_pass_due = False
            self._passes_begun += 1
            self._pass_begun_s = now_s
            return list(self._followed.values()), True

    def _note_pass(self, is_complete: bool) -> None:
        with self._changed:
            now_s = time.monotonic()
            pause_s = PASS_PAUSE * (now_s - self._pass_begun_s)
            self._pass_due_s = now_s + min(max(WAIT_S, pause_s), MAX_PAUSE_S)
            if is_complete:
                self._passes_done = self._passes_begun
                self._changed.notify_all()

    def _tidy(self) -> None:
        try:
            self._after_pass()
        except Exception as error:  # noqa: BLE001 - as below
            self._note_failure("old trajectories could not be tidied away", error)

    def _wait(self) -> bool:
        """For news, or somebody new; False if the log failed."""
        with self._changed:
            if self._new:
                return True
            cursors = {name: follower.cursor for name, follower in self._followed.items()}
        try:
            behind = self._log.wait(cursors, WAIT_S)
        except Exception as error:  # noqa: BLE001 - drafts are hints: serving goes on
            self._note_failure("the trajectory log could not be waited for", error)
            return False
        with self._changed:
            self._told |= behind
        return True

    def _catch_up(self, follower: Follower) -> bool:
        """Applies all that the log holds behind the follower's cursor; False if it failed."""
        while not self._is_stopping:
            with self._changed:
                if self._followed.get(follower.namespace) is not follower:
                    return True
            try:
                batch = self._log.read(follower.namespace, follower.cursor, READ_RECORDS)
            except Exception as error:  # noqa: BLE001 - as above
                self._note_failure("the trajectory log could not be read", error)
                follower.note_unconfirmed()
                return False
            entries = follower.accept(batch)
            if entries is None:
                continue
            for entry in entries:
                try:
                    follower.apply(entry)
                except Exception as error:  # noqa: BLE001 - one record less, no more
                    self._note_failure("a trajectory could not be indexed", error)
                self._after_record()
            if follower.finish(batch):
                return True
        return True

    def _note_failure(self, what: str, error: Exception) -> None:
        self.num_failures += 1
        if self.num_failures <= MAX_LOGGED_FAILURES:
            logger.error("%s: %r", what, error, exc_info=error)
