"""How fast a stored turn can be drafted from, how fast a store is read at the start, and what a
stored token takes."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from whiflash.bench.recordings import Ids
from whiflash.bench.redis_process import RedisAddress
from whiflash.core.errors import WhiFlashError
from whiflash.core.protocols import Tokenizer
from whiflash.engine.store import LIVE_NAMESPACE_BYTES
from whiflash.trajectories.file_log import FileLog
from whiflash.trajectories.index import Sealing, TrajectoryIndexes
from whiflash.trajectories.log import LogLimits, TrajectoryLog
from whiflash.trajectories.open import open_log
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.redaction import RedactedLog, Redactor
from whiflash.trajectories.sealed.folder import SealedFolder

NAMESPACE: Final = "bench"
TURN_TOKENS: Final = 64
RECORD_TOKENS: Final = 512
FLUSH_EVERY: Final = 1024
WAIT_S: Final = 60.0
LOAD_S: Final = 300.0
PAUSE_S: Final = 0.003
INDEX_BYTES: Final = 2**30
SEALED_BYTES: Final = 2**30
SEEN_SHARE: Final = 0.9  # repeats are left out
LIMITS: Final = LogLimits(max_namespace_bytes=2**30, max_bytes=2**31)
NUM_IDS: Final = 49_152
NUM_PHRASES: Final = 20_000


class MeasurementError(WhiFlashError):
    """A store did not do in time what was to be measured."""


def agent_like(num_tokens: int, seed: int = 0) -> Ids:
    """int32: phrases of 4 to 24 ids, some of which come again and again (Zipf), as in the turns of
    agents."""
    random = np.random.default_rng(seed)
    lengths = random.integers(4, 25, NUM_PHRASES)
    ids = np.minimum(random.zipf(1.2, int(lengths.sum())), NUM_IDS - 1).astype(np.int32)
    phrases = np.split(ids, np.cumsum(lengths)[:-1])
    count = num_tokens // 8 + 1
    chosen = np.minimum(random.zipf(1.1, count), NUM_PHRASES) - 1
    chosen = np.where(chosen == NUM_PHRASES - 1, random.integers(0, NUM_PHRASES, count), chosen)
    return np.concatenate([phrases[number] for number in chosen])[:num_tokens]


def append_to_visible(writer: TrajectoryLog, reader: TrajectoryLog, num_turns: int) -> list[float]:
    """Milliseconds from the end of a turn until another log's reader can draft from it, sorted."""
    text = agent_like(num_turns * TURN_TOKENS)
    waits_ms = []
    with TrajectoryIndexes(reader) as indexes:
        index = indexes.live(NAMESPACE)
        if not indexes.flush(WAIT_S):
            raise MeasurementError("the store could not be read")
        for number in range(num_turns):
            known = index.num_tokens
            tokens = text[number * TURN_TOKENS : (number + 1) * TURN_TOKENS]
            start = time.perf_counter()
            writer.append(TrajectoryRecord(NAMESPACE, f"run-{number}", tokens))
            while index.num_tokens < known + len(tokens):
                if time.perf_counter() - start > WAIT_S:
                    raise MeasurementError(f"turn {number} was not to be seen in {WAIT_S:.0f} s")
                time.sleep(0.0001)
            waits_ms.append((time.perf_counter() - start) * 1e3)
            time.sleep(PAUSE_S)
    return sorted(waits_ms)


def visible_rows(
    tokenizer: Tokenizer, redis: RedisAddress | None, num_turns: int
) -> list[dict[str, Any]]:
    """With secrets searched for, as the engine does."""
    rows = []
    with TemporaryDirectory() as folder, closing(FileLog(folder)) as files:
        redacted = RedactedLog(files, Redactor(tokenizer))
        rows.append(_quantiles("file, read back", append_to_visible(redacted, files, num_turns)))
    with TemporaryDirectory() as folder, closing(open_log(folder, tokenizer)) as log:
        waits = append_to_visible(log, log, num_turns)
        rows.append(_quantiles("file store, the engine that wrote it", waits))
    if redis is not None:
        with (
            closing(open_log(redis.url, tokenizer)) as one,
            closing(open_log(redis.url, None)) as other,
        ):
            waits = append_to_visible(one, other, num_turns)
            rows.append(_quantiles("Redis by socket, another replica", waits))
    return rows


def _quantiles(store: str, waits_ms: list[float]) -> dict[str, Any]:
    p50, p99 = np.quantile(waits_ms, (0.5, 0.99))
    return {"store": store, "p50_ms": float(p50), "p99_ms": float(p99), "turns": len(waits_ms)}


def loading_rows(redis: RedisAddress | None, num_tokens: int) -> list[dict[str, Any]]:
    """What a new process needs until all of a store can be drafted from: nothing sealed yet, and
    with the sealed files of the process before it."""
    rows = []
    with TemporaryDirectory() as folder:
        with closing(FileLog(folder, LIMITS)) as log:
            written: dict[str, float | None] = {"write_s": _fill(log, num_tokens)}
        files = (path for path in Path(folder).rglob("*") if path.is_file())
        written["stored_bytes"] = sum(path.stat().st_size for path in files) / num_tokens
        for state in ("file", "file, sealed before"):
            with closing(FileLog(folder, LIMITS)) as log:
                sealed = SealedFolder.beside_log(Path(folder))
                rows.append(_loaded(state, log, sealed, num_tokens) | written)
            written = {"write_s": None, "stored_bytes": None}
    if redis is not None:
        empty = redis.memory_bytes()
        with closing(open_log(redis.url, None, LIMITS)) as shared:
            written = {"write_s": _fill(shared, num_tokens)}
        written["stored_bytes"] = (redis.memory_bytes() - empty) / num_tokens
        with closing(open_log(redis.url, None, LIMITS)) as shared:
            sealed = SealedFolder.temporary()
            rows.append(_loaded("Redis by socket", shared, sealed, num_tokens) | written)
    return rows


def _fill(log: TrajectoryLog, num_tokens: int) -> float:
    """Seconds until all of it was written. Flushed now and then: the queue is bounded, and what it
    has no room for would be dropped."""
    text = agent_like(num_tokens)
    start = time.perf_counter()
    for number, begin in enumerate(range(0, num_tokens, RECORD_TOKENS)):
        tokens = text[begin : begin + RECORD_TOKENS]
        log.append(TrajectoryRecord(NAMESPACE, f"run-{number // 16}", tokens, segment=number))
        if number % FLUSH_EVERY == FLUSH_EVERY - 1:
            _require(log.flush(WAIT_S), "the store did not take what was written")
    _require(log.flush(WAIT_S), "the store did not take what was written")
    return time.perf_counter() - start


def _loaded(
    store: str, log: TrajectoryLog, folder: SealedFolder, num_tokens: int
) -> dict[str, Any]:
    """The budgets of memory are the engine's. load_s: until everything can be drafted from;
    seal_s: until what the live tier has no room for lies in files."""
    sealing = Sealing(folder, SEALED_BYTES, SEALED_BYTES)
    with (
        closing(folder),
        TrajectoryIndexes(log, INDEX_BYTES, LIVE_NAMESPACE_BYTES, sealing=sealing) as indexes,
    ):
        start = time.perf_counter()
        index = indexes.live(NAMESPACE)
        _require(indexes.flush(LOAD_S) and indexes.ready_shared, "the store was not read in time")
        load_s = time.perf_counter() - start
        _require(indexes.flush_sealed(LOAD_S), "the old runs were not sealed in time")
        sealed_tokens = indexes.num_sealed_tokens
        _require(index.num_tokens >= SEEN_SHARE * num_tokens, f"{index.num_tokens} were indexed")
        return {
            "store": store,
            "tokens": num_tokens,
            "load_s": load_s,
            "rate": num_tokens / load_s,
            "seal_s": time.perf_counter() - start,
            "live_bytes": index.num_bytes / max(index.live.num_tokens, 1),
            "sealed_bytes": indexes.num_sealed_bytes / sealed_tokens if sealed_tokens else None,
        }


def _require(is_done: bool, what: str) -> None:
    if not is_done:
        raise MeasurementError(what)
