"""The thread that seals: one for all namespaces, of low priority."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque

from whiflash.trajectories.sealed.tier import SealedTier

logger = logging.getLogger(__name__)
RETRY_S = 30.0
STOP_S = 10.0
NICENESS = 10
MAX_LOGGED_FAILURES = 10


class SealBuilder:
    """Works on tiers one piece at a time, by turns. A tier whose work fails rests for `retry_s`;
    drafts get fewer, nothing else happens."""

    def __init__(self, retry_s: float = RETRY_S) -> None:
        self._retry_s = retry_s
        self._changed = threading.Condition()
        self._due: deque[SealedTier] = deque()
        self._resting: dict[SealedTier, float] = {}  # until when
        self._current: SealedTier | None = None
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self.num_failures = 0

    def wake(self, tier: SealedTier) -> None:
        """There may be work in `tier`. The first call starts the thread."""
        with self._changed:
            if self._is_stopping or tier in self._due or tier in self._resting:
                return
            self._due.append(tier)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="whiflash-sealing", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def forget(self, tier: SealedTier) -> None:
        """Waits for the piece that is just being built."""
        with self._changed:
            self._due = deque(other for other in self._due if other is not tier)
            self._resting.pop(tier, None)
            self._changed.wait_for(lambda: self._current is not tier)

    def flush(self, timeout_s: float) -> bool:
        """Waits until nothing is left to do; False if that took longer, or work failed."""
        with self._changed:
            is_idle = self._changed.wait_for(
                lambda: not self._due and self._current is None, timeout_s
            )
            return is_idle and not self._resting

    def stop(self) -> None:
        """Ends the thread after the piece that is just being built, which is waited for only so
        long: a file is whole or not there. Idempotent."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(STOP_S)

    def _run(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            # On Linux a thread has its own: serving comes first.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._is_stopping, self._pause_s())
                self._wake_rested()
                if self._is_stopping:
                    return
                if not self._due:
                    continue
                tier = self._current = self._due.popleft()
            self._work(tier)

    def _work(self, tier: SealedTier) -> None:
        rest_s, has_more = 0.0, False
        try:
            has_more = tier.work()
        except Exception as error:  # noqa: BLE001 - drafts are hints: serving goes on
            rest_s = self._retry_s
            self._note_failure(error)
        with self._changed:
            self._current = None
            if rest_s:
                self._resting[tier] = time.monotonic() + rest_s
            elif has_more and tier not in self._due:
                self._due.append(tier)
            self._changed.notify_all()

    def _pause_s(self) -> float | None:
        if not self._resting:
            return None
        return max(min(self._resting.values()) - time.monotonic(), 0.0)

    def _wake_rested(self) -> None:
        now = time.monotonic()
        for tier in [tier for tier, until in self._resting.items() if until <= now]:
            del self._resting[tier]
            self._due.append(tier)

    def _note_failure(self, error: Exception) -> None:
        self.num_failures += 1
        if self.num_failures <= MAX_LOGGED_FAILURES:
            logger.error("old trajectories could not be sealed: %r", error)
