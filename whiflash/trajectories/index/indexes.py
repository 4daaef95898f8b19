"""All live indexes of a process, strictly by namespace."""

from __future__ import annotations

import threading
from collections import OrderedDict
from types import TracebackType
from typing import Self

from whiflash.core.errors import ConfigError
from whiflash.trajectories.index.automaton import warm_up
from whiflash.trajectories.index.live import MIN_BYTES, LiveIndex
from whiflash.trajectories.log import TrajectoryLog
from whiflash.trajectories.record import require_namespace
from whiflash.trajectories.tailer import DEFAULT_MAX_UNCONFIRMED_S, Tailer

DEFAULT_MAX_BYTES = 256 * 2**20


class TrajectoryIndexes:
    """Live indexes, filled from one log by a thread of their own.

    A namespace is followed from its first use on. Over `max_bytes` in all, the namespace that has
    been out of use longest gives up its oldest runs first; each has at most `max_namespace_bytes`
    (default: all). Nothing is drafted from a namespace while a deletion in it may have been missed,
    as when a shared log has been away for `max_unconfirmed_s`. Closing does not close the log.
    """

    def __init__(
        self,
        log: TrajectoryLog,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_namespace_bytes: int | None = None,
        max_unconfirmed_s: float = DEFAULT_MAX_UNCONFIRMED_S,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_namespace_bytes = max_namespace_bytes or max_bytes
        if min(self._max_bytes, self._max_namespace_bytes) < MIN_BYTES:
            raise ConfigError(
                f"trajectory indexes need at least {MIN_BYTES} bytes, got max_bytes={max_bytes}, "
                f"max_namespace_bytes={max_namespace_bytes}"
            )
        warm_up()
        self._lock = threading.Lock()
        self._live: OrderedDict[str, LiveIndex] = OrderedDict()  # least recently used first
        self._tailer = Tailer(log, self._keep_within_budget, max_unconfirmed_s)

    def live(self, namespace: str) -> LiveIndex:
        """The index of `namespace`, followed from now on. Raises ValueError without a namespace,
        or after `close`."""
        require_namespace(namespace)
        with self._lock:
            index = self._live.get(namespace)
            if index is None:
                index = LiveIndex(namespace, self._max_namespace_bytes)
                self._tailer.follow(index)
                self._live[namespace] = index
            self._live.move_to_end(namespace)
            return index

    def drop(self, namespace: str) -> None:
        """Forgets the index of `namespace`; the log keeps its records."""
        with self._lock:
            self._tailer.forget(namespace)
            self._live.pop(namespace, None)

    @property
    def num_bytes(self) -> int:
        """Memory of all indexes."""
        with self._lock:
            return sum(index.num_bytes for index in self._live.values())

    @property
    def num_failures(self) -> int:
        """Reads and records that failed so far."""
        return self._tailer.num_failures

    @property
    def ready_shared(self) -> bool:
        """Whether every followed namespace holds all that the log held when it was last read."""
        return self._tailer.ready_shared

    def _keep_within_budget(self) -> None:
        """On the tailer's thread, after every record."""
        while self.num_bytes > self._max_bytes:
            with self._lock:
                oldest_first = list(self._live.values())
            if not any(index.evict_oldest() for index in oldest_first):
                return

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Waits until everything logged before this call can be found; False on a timeout."""
        return self._tailer.flush(timeout_s)

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        self._tailer.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken. Call `flush` first."""
        with self._lock:
            live = dict(self._live)
        for namespace, index in live.items():
            assert index.namespace == namespace, "an index under another namespace's name"
            index.check_integrity()
        assert self.num_bytes <= self._max_bytes, (self.num_bytes, self._max_bytes)
