"""The log of a process, by where it is kept."""

from __future__ import annotations

from pathlib import Path

from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Tokenizer
from whiflash.trajectories.file_log import FileLog
from whiflash.trajectories.ladder_log import LadderLog
from whiflash.trajectories.log import LogLimits, TrajectoryLog
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.redaction import RedactedLog, Redactor

MEMORY = "memory"
LOCAL_BYTES = 16 * 2**20  # of this process's own records beside a durable log


def open_log(
    where: str | Path,
    tokenizer: Tokenizer | None,
    limits: LogLimits | None = None,
    *,
    assume_noeviction: bool = False,
) -> TrajectoryLog:
    """`where` is "memory", a folder, or a redis://, rediss:// or unix:// URL.

    tokenizer: secrets are cut out of what it decodes to; None stores tokens as they are, for data
               that was searched before.
    Raises ConfigError on a place that cannot be used, StoreLockedError where another process
    writes to the folder. A Redis server that does not answer is no error.
    """
    log = _open_plain(where, limits, assume_noeviction)
    return log if tokenizer is None else RedactedLog(log, Redactor(tokenizer))


def _open_plain(
    where: str | Path, limits: LogLimits | None, assume_noeviction: bool
) -> TrajectoryLog:
    if where == MEMORY:
        return MemoryLog()
    if isinstance(where, str) and "://" in where:
        return LadderLog(_open_redis(where, limits, assume_noeviction), MemoryLog(LOCAL_BYTES))
    return LadderLog(FileLog(where, limits), MemoryLog(LOCAL_BYTES))


def _open_redis(url: str, limits: LogLimits | None, assume_noeviction: bool) -> TrajectoryLog:
    try:
        from whiflash.trajectories.redis_log import RedisLog
    except ImportError:
        raise ConfigError(
            "a Redis store needs the package redis; run: pip install 'whiflash[redis]'"
        ) from None
    return RedisLog.connect(url, limits, assume_noeviction=assume_noeviction)
