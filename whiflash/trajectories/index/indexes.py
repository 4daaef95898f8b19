"""All indexes of a process, strictly by namespace."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from whiflash.core.errors import ConfigError
from whiflash.trajectories.index.automaton import warm_up
from whiflash.trajectories.index.live import MIN_BYTES
from whiflash.trajectories.index.part import warm_up as warm_up_live
from whiflash.trajectories.index.sealed_source import warm_up as warm_up_sealed
from whiflash.trajectories.index.tiers import NamespaceIndex
from whiflash.trajectories.log import DEFAULT_MAX_AGE_S, TrajectoryLog
from whiflash.trajectories.record import require_namespace
from whiflash.trajectories.sealed.builder import SealBuilder
from whiflash.trajectories.sealed.folder import SealedFolder
from whiflash.trajectories.sealed.tier import MIN_BYTES as MIN_SEALED_BYTES
from whiflash.trajectories.sealed.tier import SealedTier
from whiflash.trajectories.tailer import DEFAULT_MAX_UNCONFIRMED_S, Tailer

DEFAULT_MAX_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Sealing:
    """Where old runs are sealed, and how many bytes of files they may fill: in all, and of one
    namespace. Raises ConfigError."""

    folder: SealedFolder
    max_bytes: int = 2 * 2**30
    max_namespace_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        if min(self.max_bytes, self.max_namespace_bytes) < MIN_SEALED_BYTES:
            raise ConfigError(
                f"sealed trajectories need at least {MIN_SEALED_BYTES} bytes, got max_bytes="
                f"{self.max_bytes}, max_namespace_bytes={self.max_namespace_bytes}"
            )


class TrajectoryIndexes:
    """Indexes, filled from one log by a thread of their own.

    A namespace is followed from its first use on, and given up when it has been idle for long:
    the log has its runs, and a server may see a new namespace with every call. Over `max_bytes` of
    memory in all, the namespace that has been out of use longest gives up its oldest live runs
    first; each has at most `max_namespace_bytes` (default: all). With `sealing` they go to files,
    by another thread, else they are forgotten. Runs are forgotten `max_age_s` after they ended.
    Nothing is drafted from a namespace while a deletion in it may have been missed, as when a
    shared log has been away for `max_unconfirmed_s`. Closing closes neither the log nor the folder
    of the files.
    """

    def __init__(
        self,
        log: TrajectoryLog,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_namespace_bytes: int | None = None,
        max_unconfirmed_s: float = DEFAULT_MAX_UNCONFIRMED_S,
        *,
        max_age_s: float = DEFAULT_MAX_AGE_S,
        sealing: Sealing | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_namespace_bytes = max_namespace_bytes or max_bytes
        if min(self._max_bytes, self._max_namespace_bytes) < MIN_BYTES:
            raise ConfigError(
                f"trajectory indexes need at least {MIN_BYTES} bytes, got max_bytes={max_bytes}, "
                f"max_namespace_bytes={max_namespace_bytes}"
            )
        warm_up()
        warm_up_live()
        warm_up_sealed()
        self._max_age_s = max_age_s
        self._sealing = sealing
        self._builder = SealBuilder()
        self._lock = threading.Lock()
        self._live: OrderedDict[str, NamespaceIndex] = OrderedDict()  # least recently used first
        self._tailer = Tailer(log, self._keep_within_budget, max_unconfirmed_s, self._expire)

    def live(self, namespace: str) -> NamespaceIndex:
        """The index of `namespace`, followed from now on. Raises ValueError without a namespace,
        or after `close`."""
        require_namespace(namespace)
        with self._lock:
            index = self._live.get(namespace)
            if index is None:
                index = self._opened(namespace)
                self._tailer.follow(index)
                self._live[namespace] = index
            self._live.move_to_end(namespace)
            index.touch()
            return index

    def _opened(self, namespace: str) -> NamespaceIndex:
        sealed = None
        if self._sealing is not None:
            sealed = SealedTier(namespace, self._sealing.folder, self._sealing.max_namespace_bytes)
        return NamespaceIndex(
            namespace, self._max_namespace_bytes, self._max_age_s, sealed, self._builder.wake
        )

    def drop(self, namespace: str) -> None:
        """Forgets the index of `namespace`; the log keeps its records, and files stay."""
        self._drop(lambda index: index.namespace == namespace)

    def _drop(self, is_unwanted: Callable[[NamespaceIndex], bool]) -> None:
        with self._lock:
            gone = [index for index in self._live.values() if is_unwanted(index)]
            for index in gone:
                self._tailer.forget(index.namespace)
                del self._live[index.namespace]
        for index in gone:
            if index.sealed is not None:
                self._builder.forget(index.sealed)

    def _indexes(self) -> list[NamespaceIndex]:
        """Least recently used first."""
        with self._lock:
            return list(self._live.values())

    @property
    def num_namespaces(self) -> int:
        """Followed ones."""
        return len(self._live)

    @property
    def num_bytes(self) -> int:
        """Memory of all live tiers."""
        return sum(index.num_bytes for index in self._indexes())

    @property
    def num_sealed_bytes(self) -> int:
        """Of the mapped files of all namespaces, and what goes with them."""
        return sum(index.num_sealed_bytes for index in self._indexes())

    @property
    def num_sealed_tokens(self) -> int:
        """That can be drafted from sealed files."""
        return sum(index.sealed.num_tokens for index in self._indexes() if index.sealed)

    @property
    def num_failures(self) -> int:
        """Reads, records and builds that failed so far."""
        return self._tailer.num_failures + self._builder.num_failures

    @property
    def ready_shared(self) -> bool:
        """Whether every followed namespace holds all that the log held when it was last read."""
        return self._tailer.ready_shared

    def _keep_within_budget(self) -> None:
        """On the tailer's thread, after every record."""
        while self.num_bytes > self._max_bytes:
            if not any(index.evict_oldest() for index in self._indexes()):
                break
        limit = self._sealing.max_bytes if self._sealing is not None else 0
        while limit and self.num_sealed_bytes > limit:
            if not any(index.sealed.evict_oldest() for index in self._indexes() if index.sealed):
                break

    def _expire(self) -> None:
        """On the tailer's thread, after each of its passes."""
        for index in self._indexes():
            index.expire()
        self._drop(lambda index: index.is_idle)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Waits until everything logged before this call can be found; False on a timeout."""
        return self._tailer.flush(timeout_s)

    def flush_sealed(self, timeout_s: float = 60.0) -> bool:
        """Waits until nothing is left to seal; False on a timeout, or where it failed."""
        return self._builder.flush(timeout_s)

    def close(self) -> None:
        """Ends the threads. Idempotent."""
        self._tailer.stop()
        self._builder.stop()

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
