"""The trajectory log that replicas share: one Redis stream per namespace."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

import redis

from whiflash.core.errors import ConfigError
from whiflash.trajectories.breaker import Breaker
from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.errors import StoreClosedError, StoreUnavailableError
from whiflash.trajectories.log import FLUSH_S, START, LogBatch, LogLevel, LogLimits, LogStatus
from whiflash.trajectories.record import TrajectoryRecord, now_ms, require_namespace
from whiflash.trajectories.redis_log import server, stream
from whiflash.trajectories.writer import (
    DEFAULT_QUEUE_BYTES,
    ITEM_OVERHEAD_BYTES,
    BackgroundWriter,
)

logger = logging.getLogger(__name__)
WAIT_SLICE_S = 0.05  # how late `wake` may be heard
TRIM_EVERY_S = 10.0
Answer = TypeVar("Answer")


class RedisLog:
    """Implements TrajectoryLog. A server that does not answer costs records (the oldest in the
    queue) and freshness, never an exception in `append`.

    Writing and reading have a breaker each: a full server can still be read. A server is asked
    what it is when first reached and after every failure, as it may be another one then.
    """

    def __init__(
        self,
        client: redis.Redis,
        where: str = "redis",
        limits: LogLimits | None = None,
        *,
        assume_noeviction: bool = False,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        writing: Breaker | None = None,
        reading: Breaker | None = None,
    ) -> None:
        self._client = client
        self._where = where
        self._limits = limits or LogLimits()
        self._assume_noeviction = assume_noeviction
        self._is_verified = False
        self._reading = reading or Breaker()
        self._woken = threading.Event()
        self._is_closed = False
        self._num_corrupt = 0
        self._trimmed_at: dict[str, float] = {}
        self._writer: BackgroundWriter[TrajectoryRecord] = BackgroundWriter(
            "whiflash-redis-log",
            self._write,
            lambda record: record.num_bytes + ITEM_OVERHEAD_BYTES,
            breaker=writing or Breaker(),
            max_bytes=queue_bytes,
            idle=self._trim,
        )

    @classmethod
    def connect(
        cls,
        url: str,
        limits: LogLimits | None = None,
        *,
        assume_noeviction: bool = False,
        timeout_s: float = server.TIMEOUT_S,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
    ) -> RedisLog:
        """Raises ConfigError for a wrong URL, a refused server or a refused password. A server
        that does not answer is no error: it is asked again in the background."""
        client = server.open_client(url, timeout_s)
        shown = server.without_password(url)
        try:
            server.verify(client, assume_noeviction=assume_noeviction)
        except ConfigError as error:
            raise ConfigError(f"{shown}: {error}") from None
        except redis.AuthenticationError as error:
            raise ConfigError(f"{shown} refuses the user or password: {error}") from None
        except (redis.RedisError, OSError) as error:
            logger.warning("%s does not answer yet (%s); going on without it", shown, error)
        return cls(
            client, shown, limits, assume_noeviction=assume_noeviction, queue_bytes=queue_bytes
        )

    def _verify_once(self) -> None:
        if not self._is_verified:
            server.verify(self._client, assume_noeviction=self._assume_noeviction)
            self._is_verified = True

    def _start_over(self, error: Exception) -> None:
        """After a failure the next connection may lead to another server."""
        self._is_verified = False
        if isinstance(error, redis.ReadOnlyError | redis.ConnectionError | redis.TimeoutError):
            self._client.connection_pool.disconnect(inuse_connections=False)

    # Writing: the writer's thread, but for `append` and `delete`.

    def append(self, record: TrajectoryRecord) -> None:
        self._writer.put(record)

    def _write(self, batch: deque[TrajectoryRecord]) -> None:
        records = list(batch)
        try:
            self._verify_once()
            errors = stream.append_all(self._client, records, self._limits)
        except Exception as error:
            self._start_over(error)
            raise
        batch.clear()
        batch.extend(r for r, error in zip(records, errors, strict=True) if error is not None)
        self._note_namespaces(records)
        first = next((error for error in errors if error is not None), None)
        if first is not None:
            self._start_over(first)
            raise first

    def _note_namespaces(self, records: list[TrajectoryRecord]) -> None:
        for record in records:
            self._trimmed_at.setdefault(record.namespace, 0.0)

    def _trim(self) -> None:
        """Namespaces that were written to, each every TRIM_EVERY_S."""
        now = time.monotonic()
        due = [name for name, at in self._trimmed_at.items() if now - at >= TRIM_EVERY_S]
        if not self._writer.breaker.is_closed:
            return
        for namespace in due:
            self._trimmed_at[namespace] = now
            stream.trim(self._client, namespace, self._limits)

    def trim(self, namespace: str) -> None:
        """At once. Raises StoreUnavailableError."""
        self._ask(lambda: stream.trim(self._client, namespace, self._limits))

    def delete(self, deletion: Deletion) -> Deletion:
        if self._is_closed:
            raise StoreClosedError("the trajectory log is closed")
        # The time is fixed before the queue is searched: what is in it is older.
        asked = replace(deletion, time_ms=deletion.time_ms or now_ms())
        self._writer.discard(asked.covers)
        return self._ask(lambda: stream.bury(self._client, asked))

    def may_hold(self, deletion: Deletion) -> bool:  # noqa: ARG002 - nobody can know
        """Always: what another replica has waiting, or took before a trim, cannot be seen."""
        return True

    # Reading.

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        if self._is_closed:
            raise StoreClosedError("the trajectory log is closed")
        if not self._reading.allow():
            raise StoreUnavailableError(
                f"{self._where} failed before ({self._reading.last_error}); it is asked again in "
                f"{self._reading.retry_in_s:.1f} s"
            )
        try:
            self._verify_once()
            answer = call()
        except (redis.RedisError, OSError, ConfigError) as error:
            self._reading.failure(error)
            self._start_over(error)
            raise StoreUnavailableError(f"{self._where} failed: {error}") from error
        except BaseException as error:
            self._reading.failure(repr(error))
            raise
        self._reading.success()
        return answer

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        require_namespace(namespace)
        if cursor != START:
            stream.parse_id(cursor)
        batch = self._ask(lambda: stream.read(self._client, namespace, cursor, max_records))
        self._num_corrupt += batch.num_corrupt
        oldest_ms = now_ms() - 1e3 * self._limits.max_age_s
        fresh = tuple(
            entry for entry in batch.entries
            if isinstance(entry, Deletion) or entry.time_ms >= oldest_ms
        )  # fmt: skip
        for entry in batch.entries:
            if isinstance(entry, Deletion):
                self._discard_older(entry)
        return replace(batch, entries=fresh)

    def namespaces(self) -> tuple[str, ...]:
        return self._ask(lambda: stream.namespaces(self._client))

    def _discard_older(self, tombstone: Deletion) -> None:
        """Another replica deleted what may still wait in this one's queue."""
        self._writer.discard(
            lambda record: tombstone.covers(record) and record.time_ms <= tombstone.time_ms
        )

    def wait(self, cursors: Mapping[str, str], timeout_s: float) -> set[str]:
        """As in TrajectoryLog; raises StoreUnavailableError."""
        deadline = time.monotonic() + timeout_s
        names = {stream.log_key(name): name for name in cursors}
        places = {
            stream.log_key(name): cursor or stream.FIRST_ID for name, cursor in cursors.items()
        }
        while not (self._woken.is_set() or self._is_closed):
            left = min(deadline - time.monotonic(), WAIT_SLICE_S)
            if left <= 0:
                return set()
            if not places:
                self._woken.wait(left)
            elif behind := self._behind(places, max(int(1e3 * left), 1)):
                return {names[key] for key in behind}
        self._woken.clear()
        return set()

    def _behind(self, places: dict[str, str], block_ms: int) -> list[str]:
        """Keys of streams that have entries behind their places."""
        streams: dict[Any, Any] = dict(places)
        found = self._ask(lambda: self._client.xread(streams, count=1, block=block_ms))
        return [key.decode() for key, _ in cast("list[tuple[bytes, Any]]", found or [])]

    def wake(self) -> None:
        self._woken.set()

    # Life.

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        return self._writer.flush(timeout_s)

    @property
    def num_dropped(self) -> int:
        return self._writer.num_dropped

    def status(self) -> LogStatus:
        """level SHARED says that the server could be read when last asked."""
        writer, reading = self._writer, self._reading
        level = LogLevel.SHARED if reading.is_closed else LogLevel.LOCAL
        return LogStatus(
            "redis", self._where, LogLevel.OFF if self._is_closed else level,
            writer.num_pending_bytes, writer.num_written, writer.num_dropped,
            writer.breaker.num_failures + reading.num_failures, self._num_corrupt,
            writer.breaker.last_error or reading.last_error, writer.breaker.is_closed,
            self._limits.max_age_s,
        )  # fmt: skip

    def close(self, timeout_s: float = FLUSH_S) -> None:
        if self._is_closed:
            return
        self._writer.close(timeout_s)
        self._is_closed = True
        self._woken.set()
        self._client.close()

    def check_integrity(self) -> None:
        self._writer.check_integrity()
        self._reading.check_integrity()
