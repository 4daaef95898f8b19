"""The thread between the engine, which must not wait, and a disk or a network."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from whiflash.core.errors import ConfigError
from whiflash.trajectories.breaker import Breaker
from whiflash.trajectories.errors import StoreClosedError

logger = logging.getLogger(__name__)
Item = TypeVar("Item")

DEFAULT_QUEUE_BYTES = 16 * 2**20
MAX_BATCH_BYTES = 2**20
ITEM_OVERHEAD_BYTES = 512  # what a queued record holds beside its tokens
IDLE_S = 0.5
MIN_PAUSE_S = 0.02


class BackgroundWriter(Generic[Item]):
    """Hands items to `write` on a thread of its own, in order.

    write:    gets a deque and removes from its left what it has written; what it leaves when it
              raises is tried again when `breaker` allows, still in order.
    size_of:  bytes of an item; over `max_bytes` the oldest are dropped and counted.
    idle:     called about every IDLE_S and after writes, for fsync and trimming.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[deque[Item]], None],
        size_of: Callable[[Item], int],
        *,
        breaker: Breaker | None = None,
        max_bytes: int = DEFAULT_QUEUE_BYTES,
        idle: Callable[[], None] | None = None,
    ) -> None:
        if max_bytes < 1:
            raise ConfigError(f"a store's queue needs room, got max_bytes={max_bytes}")
        self._write, self._size_of, self._idle = write, size_of, idle
        self.breaker = breaker or Breaker()
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._queue: deque[Item] = deque()
        self._num_bytes = 0  # of the queue and of what is being written
        self._num_put = 0
        self._num_left = 0  # written, dropped or discarded
        self.num_written = 0
        self.num_dropped = 0
        self._close_at: float | None = None
        self._last_logged = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def num_pending_bytes(self) -> int:
        return self._num_bytes

    def put(self, item: Item) -> None:
        """Never waits for `write`. Raises StoreClosedError after `close`."""
        with self._changed:
            if self._close_at is not None:
                raise StoreClosedError("the trajectory log is closed")
            self._num_put += 1
            self._queue.append(item)
            self._num_bytes += self._size_of(item)
            self._drop_beyond_bound()
            self._changed.notify_all()

    def _drop_beyond_bound(self) -> None:
        while self._num_bytes > self._max_bytes and self._queue:
            self._num_bytes -= self._size_of(self._queue.popleft())
            self.num_dropped += 1
            self._num_left += 1

    def discard(self, is_unwanted: Callable[[Item], bool]) -> int:
        """Removes queued items; how many. What is being written right now is waited for."""
        with self._writing, self._changed:
            kept = deque(item for item in self._queue if not is_unwanted(item))
            num_gone = len(self._queue) - len(kept)
            self._queue = kept
            self._num_bytes = self._sizes_of(kept)
            self._num_left += num_gone
            self._changed.notify_all()
            return num_gone

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything put before this call is written (or dropped)."""
        with self._changed:
            target = self._num_put
            return self._changed.wait_for(lambda: self._num_left >= target, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Writes what is queued for at most `timeout_s`; what is left then counts as dropped.
        Idempotent."""
        with self._changed:
            if self._close_at is None:
                self._close_at = time.monotonic() + timeout_s
            self._changed.notify_all()
        self._thread.join(timeout_s + IDLE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closing, IDLE_S)
                if self._is_closing and (not self._queue or self._is_overdue):
                    break
                has_work = bool(self._queue)
            if has_work:
                self._write_some()
            self._be_idle()
        self._abandon()
        self._be_idle()

    def _abandon(self) -> None:
        with self._changed:
            self.num_dropped += len(self._queue)
            self._num_left += len(self._queue)
            self._queue.clear()
            self._num_bytes = 0
            self._changed.notify_all()

    @property
    def _is_closing(self) -> bool:
        return self._close_at is not None

    @property
    def _is_overdue(self) -> bool:
        """Closing, and there is no further try within the time given for it."""
        if self._close_at is None:
            return False
        return time.monotonic() + self.breaker.retry_in_s >= self._close_at

    def _write_some(self) -> None:
        if not self.breaker.allow():
            self._pause()
            return
        with self._writing:
            batch = self._take_batch()
            num_taken, taken_bytes = len(batch), self._sizes_of(batch)
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001 - a store's fault stays on this thread
                self.breaker.failure(error)
                self._log_once(error)
            else:
                self.breaker.success()
                self._last_logged = ""
            self._put_back(batch, num_taken - len(batch), taken_bytes - self._sizes_of(batch))
        if batch:
            self._pause()

    def _take_batch(self) -> deque[Item]:
        batch: deque[Item] = deque()
        with self._changed:
            num_bytes = 0
            while self._queue and num_bytes < MAX_BATCH_BYTES:
                batch.append(self._queue.popleft())
                num_bytes += self._size_of(batch[-1])
        return batch

    def _put_back(self, batch: deque[Item], num_done: int, done_bytes: int) -> None:
        with self._changed:
            self._queue.extendleft(reversed(batch))
            self._num_bytes -= done_bytes
            self.num_written += num_done
            self._num_left += num_done
            self._drop_beyond_bound()
            self._changed.notify_all()

    def _sizes_of(self, items: Iterable[Item]) -> int:
        return sum(map(self._size_of, items))

    def _pause(self) -> None:
        """Until the breaker allows a further try, or the log is being closed."""
        with self._changed:
            wait_s = max(self.breaker.retry_in_s, MIN_PAUSE_S)
            was_closing = self._is_closing
            self._changed.wait_for(lambda: self._is_closing and not was_closing, wait_s)

    def _be_idle(self) -> None:
        if self._idle is None:
            return
        try:
            self._idle()
        except Exception as error:  # noqa: BLE001 - as above
            self._log_once(error)

    def _log_once(self, error: Exception) -> None:
        text = str(error)
        if text != self._last_logged:
            self._last_logged = text
            logger.warning("%s: %s; drafting goes on without it", self._thread.name, text)

    def check_integrity(self) -> None:
        self.breaker.check_integrity()
        with self._writing, self._changed:
            assert self._num_bytes == self._sizes_of(self._queue)
            assert self._num_bytes <= self._max_bytes, (self._num_bytes, self._max_bytes)
            assert self._num_left + len(self._queue) == self._num_put
