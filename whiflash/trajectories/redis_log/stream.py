"""One namespace's stream in Redis: commands and what they answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import redis

from whiflash.trajectories import codec
from whiflash.trajectories.codec import Entry
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import CorruptRecordError, UnknownVersionError
from whiflash.trajectories.log import START, LogBatch, LogLimits
from whiflash.trajectories.record import TrajectoryRecord, now_ms

FIELD = "r"
FIRST_ID = "0-0"
PURGE_COUNT = 256
SCAN_COUNT = 1000
MAX_TRIES = 16
TRIM_SLACK = 0.95
Id = tuple[int, int]
Row = tuple[bytes, dict[bytes, bytes]]


def log_key(namespace: str) -> str:
    """The hash tag keeps a namespace's keys together (facts: retrieval, 3.2)."""
    return f"dr:{{{namespace}}}:log"


def epoch_key(namespace: str) -> str:
    return f"dr:{{{namespace}}}:epoch"


def namespaces(client: redis.Redis) -> tuple[str, ...]:
    """Those that have a stream, sorted."""
    before, after = log_key("*").split("*")
    keys = client.scan_iter(match=before + "*" + after, count=SCAN_COUNT)
    return tuple(sorted({key.decode()[len(before) : -len(after)] for key in keys}))


class Frames(NamedTuple):
    """Entries of a stream range; `num_bad` are damaged or of an unknown version."""

    entries: tuple[Entry, ...]
    num_bad: int


def parse_id(text: str) -> Id:
    """Raises ValueError on what is no stream id."""
    milliseconds, _, number = text.partition("-")
    if not (milliseconds.isdecimal() and number.isdecimal()):
        raise ValueError(f"cursor {text!r} was not given out by this log")
    return int(milliseconds), int(number)


def append_all(
    client: redis.Redis, records: Sequence[TrajectoryRecord], limits: LogLimits
) -> list[Exception | None]:
    """One pipeline; per record None or why it was not taken. A stream that nobody writes to any
    longer disappears when its last record is `max_age_s` old."""
    pipe = client.pipeline(transaction=False)
    for record in records:
        pipe.xadd(log_key(record.namespace), {FIELD: codec.encode(record)})
    for namespace in {record.namespace for record in records}:
        pipe.pexpire(log_key(namespace), int(1e3 * limits.max_age_s))
    answers = pipe.execute(raise_on_error=False)[: len(records)]
    return [answer if isinstance(answer, Exception) else None for answer in answers]


def read(client: redis.Redis, namespace: str, cursor: str, count: int) -> LogBatch:
    """A LogBatch, damaged entries left out."""
    key = log_key(namespace)
    if cursor != START:
        parse_id(cursor)
    pipe = client.pipeline(transaction=False)
    # The epoch comes first: a tombstone is written together with it, so it is in the range.
    pipe.get(epoch_key(namespace))
    pipe.xinfo_stream(key)
    pipe.xrange(key, min=f"({cursor}" if cursor else "-", max="+", count=count)
    epoch, info, rows = pipe.execute(raise_on_error=False)
    for answer in (epoch, rows):
        if isinstance(answer, Exception):
            raise answer
    del_epoch = int(epoch or 0)
    if cursor != START and _is_behind_the_log(parse_id(cursor), info):
        return LogBatch((), START, has_gap=True, is_end=False, del_epoch=del_epoch)
    frames = decode_rows(rows)
    end = str(rows[-1][0], "ascii") if rows else cursor
    return LogBatch(frames.entries, end, False, len(rows) < count, del_epoch, frames.num_bad)


def _is_behind_the_log(cursor: Id, info: Any) -> bool:
    """Whether the reader's last entry is gone: trimmed, or the server restarted with less."""
    if isinstance(info, redis.ResponseError) and "no such key" in str(info):
        return True
    if isinstance(info, Exception):
        raise info
    if not info["length"]:
        return True
    first, last = info["first-entry"][0], info["last-generated-id"]
    return not _id(first) <= cursor <= _id(last)


def _id(raw: bytes | str) -> Id:
    return parse_id(raw.decode("ascii") if isinstance(raw, bytes) else raw)


def decode_rows(rows: Iterable[Row]) -> Frames:
    """What XRANGE answered, as entries."""
    entries, num_bad = [], 0
    for _, fields in rows:
        try:
            entry = codec.decode(fields[FIELD.encode()])
        except (CorruptRecordError, UnknownVersionError, KeyError):
            num_bad += 1
            continue
        if entry is not None:
            entries.append(entry)
    return Frames(tuple(entries), num_bad)


def bury(client: redis.Redis, deletion: Deletion) -> Deletion:
    """Writes the tombstone and raises the epoch in one transaction, then removes what it covers.
    Raises redis.RedisError; then it has to be repeated, which does no harm."""
    key = epoch_key(deletion.namespace)
    with client.pipeline(transaction=True) as pipe:
        for _ in range(MAX_TRIES):
            with contextlib.suppress(redis.WatchError):
                pipe.watch(key)  # type: ignore[no-untyped-call]
                tombstone = deletion.raised(int(pipe.get(key) or 0), now_ms())
                pipe.multi()
                pipe.set(key, tombstone.epoch)
                pipe.xadd(log_key(deletion.namespace), {FIELD: codec.encode(tombstone)})
                _, place = pipe.execute()
                _purge(client, tombstone, place)
                return tombstone
    raise redis.RedisError("other deletions in the same namespace came in between; repeat it")


def _purge(client: redis.Redis, tombstone: Deletion, place: bytes) -> None:
    """Removes the covered entries in front of the tombstone at `place`."""
    key = log_key(tombstone.namespace)
    if tombstone.kind is DeletionKind.NAMESPACE:
        client.xtrim(key, minid=place, approximate=False)
        return
    start = "-"
    while True:
        rows = _range(client, key, start, place)
        covered = [row_id for row_id, fields in rows if _is_covered(fields, tombstone)]
        if covered:
            client.xdel(key, *covered)
        if len(rows) < PURGE_COUNT:
            return
        start = "(" + rows[-1][0].decode("ascii")


def _range(client: redis.Redis, key: str, start: str, end: bytes) -> list[Row]:
    return cast("list[Row]", client.xrange(key, min=start, max=end, count=PURGE_COUNT))


def _is_covered(fields: dict[bytes, bytes], tombstone: Deletion) -> bool:
    entries = decode_rows([(b"", fields)]).entries
    return any(isinstance(e, TrajectoryRecord) and tombstone.covers(e) for e in entries)


def trim(client: redis.Redis, namespace: str, limits: LogLimits) -> None:
    """By age, then by the memory that Redis counts for the stream; whole nodes of about 4 KiB."""
    key = log_key(namespace)
    oldest_ms = max(now_ms() - int(1e3 * limits.max_age_s), 0)
    client.xtrim(key, minid=f"{oldest_ms}-0")
    used = client.memory_usage(key) or 0
    if used > limits.max_namespace_bytes:
        length = client.xlen(key)
        client.xtrim(key, maxlen=int(length * TRIM_SLACK * limits.max_namespace_bytes / used))
