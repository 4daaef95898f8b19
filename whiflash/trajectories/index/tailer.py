"""The thread that carries log records into live indexes, off the engine's thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from whiflash.trajectories.index.live import LiveIndex
from whiflash.trajectories.log import START, TrajectoryLog

logger = logging.getLogger(__name__)
WAIT_S = 0.5
MAX_LOGGED_FAILURES = 10
RETRY_S = 0.2  # after a log failed to answer


class Tailer:
    """Reads every followed namespace from the log's start and goes on for ever.

    A log that fails is asked again later, a record that cannot be indexed is left out; both are
    counted in `num_failures`. Drafts get older or fewer, nothing else happens.
    """

    def __init__(self, log: TrajectoryLog, after_record: Callable[[], None]) -> None:
        self._log = log
        self._after_record = after_record
        self._changed = threading.Condition()
        self._followed: dict[str, LiveIndex] = {}
        self._cursors: dict[str, str] = {}
        self._passes_begun = 0
        self._passes_done = 0
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self.num_failures = 0
        self.num_gaps = 0

    def follow(self, index: LiveIndex) -> None:
        """Starts filling `index` from the log; the first call starts the thread."""
        with self._changed:
            if self._is_stopping:
                raise ValueError("the trajectory indexes are closed")
            self._followed[index.namespace] = index
            self._cursors[index.namespace] = START
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="whiflash-trajectories", daemon=True
                )
                self._thread.start()
        self._log.wake()

    def forget(self, namespace: str) -> None:
        """Stops filling the index of `namespace`."""
        with self._changed:
            self._followed.pop(namespace, None)
            self._cursors.pop(namespace, None)

    def flush(self, timeout_s: float) -> bool:
        """Waits until all that was in the log when this was called is indexed; False if that
        took longer."""
        with self._changed:
            if self._thread is None:
                return True
            target = self._passes_begun + 1
        self._log.wake()
        with self._changed:
            return self._changed.wait_for(lambda: self._passes_done >= target, timeout_s)

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        with self._changed:
            self._is_stopping = True
            thread = self._thread
        self._log.wake()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            with self._changed:
                self._passes_begun += 1
                number = self._passes_begun
                followed = list(self._followed)
            num_complete = sum(self._catch_up(namespace) for namespace in followed)
            was_complete = num_complete == len(followed)
            with self._changed:
                if was_complete:
                    self._passes_done = number
                    self._changed.notify_all()
                cursors = dict(self._cursors)
            if was_complete:
                self._log.wait(cursors, WAIT_S)
            else:
                time.sleep(RETRY_S)

    def _catch_up(self, namespace: str) -> bool:
        """Applies all that the log holds behind the namespace's cursor; False if it failed."""
        while not self._is_stopping:
            with self._changed:
                index, cursor = self._followed.get(namespace), self._cursors.get(namespace)
            if index is None or cursor is None:
                return True
            try:
                batch = self._log.read(namespace, cursor)
            except Exception as error:  # noqa: BLE001 - drafts are hints: serving goes on
                self._note_failure("the trajectory log could not be read", error)
                return False
            self.num_gaps += batch.has_gap
            if not batch.records:
                return True
            for record in batch.records:
                try:
                    index.add(record)
                except Exception as error:  # noqa: BLE001 - one record less, no more
                    self._note_failure("a trajectory could not be indexed", error)
                self._after_record()
            with self._changed:
                if namespace in self._cursors:
                    self._cursors[namespace] = batch.cursor
        return True

    def _note_failure(self, what: str, error: Exception) -> None:
        self.num_failures += 1
        if self.num_failures <= MAX_LOGGED_FAILURES:
            logger.error("%s: %r", what, error, exc_info=error)
