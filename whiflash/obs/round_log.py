"""A rotating log of rounds: zstd-compressed JSON lines, one per sequence and round."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import zstandard

_MAX_WORD = 64
_MAX_LIST = 64
_LEVEL = 3
_logger = logging.getLogger(__name__)


class RoundLog:
    """Records go into a bounded queue; a thread compresses and writes them.

    `write` never waits: when the queue is full the oldest record is dropped and counted. About
    every `flush_s` seconds what has come is written as one complete zstd frame, so a crash loses
    at most that much. At `max_file_bytes` the file is renamed to `<name>.<number>` and a new one
    begun; the oldest beyond `max_files` are deleted. A full or lost disk costs records (counted,
    warned of once), never the engine.

    Raises OSError if the file cannot be opened at the start. Existing records are kept: an
    existing file is rotated away, as its last frame may be torn.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        max_file_bytes: int = 64 * 2**20,
        max_files: int = 8,
        max_queue: int = 16384,
        flush_s: float = 1.0,
    ) -> None:
        self.path = Path(path)
        self.num_written = 0
        self.num_dropped = 0
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        self._flush_s = flush_s
        self._queue: deque[Mapping[str, Any]] = deque()
        self._max_queue = max_queue
        self._ready = threading.Condition()
        self._is_closing = False
        self._has_warned = False
        self._head: Mapping[str, Any] | None = None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.is_file() and self.path.stat().st_size > 0:
            self._rotate()
        self._file: BinaryIO = self.path.open("ab")
        self._thread = threading.Thread(target=self._run, name="round-log", daemon=True)
        self._thread.start()

    def write(self, record: Mapping[str, Any]) -> None:
        """Queue one record, which must not change afterwards.

        Values are numbers, booleans, None, short words, mappings of these, or short lists of
        fractions (floats, so that no ids slip in): text and token ids never enter the log. Raises
        ValueError for anything else, and after `close`.
        """
        _check_record(record)
        with self._ready:
            if self._is_closing:
                raise ValueError("the round log is closed")
            if len(self._queue) >= self._max_queue:
                self._queue.popleft()
                self.num_dropped += 1
            self._queue.append(record)

    def begin(self, head: Mapping[str, Any]) -> None:
        """What the records were measured on: first in this file and in every one after it, so that
        rotation cannot lose it. Before the first `write`."""
        self.write(head)
        self._head = head

    def close(self) -> None:
        """Write what is queued and close the file. Idempotent."""
        with self._ready:
            self._is_closing = True
            self._ready.notify()
        self._thread.join()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def _run(self) -> None:
        compressor = zstandard.ZstdCompressor(level=_LEVEL)
        is_last = False
        while not is_last:
            with self._ready:
                self._ready.wait_for(lambda: self._is_closing, timeout=self._flush_s)
                is_last = self._is_closing
                batch, self._queue = self._queue, deque()
            if batch:
                self._store(compressor, batch)

    def _store(self, compressor: zstandard.ZstdCompressor, batch: deque[Mapping[str, Any]]) -> None:
        lines = b"".join(_line(record) for record in batch)
        try:
            self._file.write(compressor.compress(lines))
            self._file.flush()
            self.num_written += len(batch)
            if self._file.tell() >= self._max_file_bytes:
                self._file.close()
                self._rotate()
                self._file = self.path.open("ab")
                if self._head is not None:
                    self._file.write(compressor.compress(_line(self._head)))
        except (OSError, ValueError) as error:
            self._lose(len(batch), error)

    def _lose(self, count: int, error: Exception) -> None:
        self.num_dropped += count
        if not self._has_warned:
            self._has_warned = True
            _logger.warning("round log %s cannot be written, rounds are dropped: %s",
                            self.path, error)  # fmt: skip

    def _rotate(self) -> None:
        older = rotated_files(self.path)
        number = _number(older[-1]) + 1 if older else 1
        self.path.rename(self.path.with_name(f"{self.path.name}.{number:06d}"))
        # The file that is about to be begun counts too.
        for file in rotated_files(self.path)[: -(self._max_files - 1) or None]:
            file.unlink(missing_ok=True)

    def check_integrity(self) -> None:
        assert len(self._queue) <= self._max_queue
        assert self._is_closing or self._thread.is_alive()
        assert len(rotated_files(self.path)) < max(self._max_files, 2)


def read_rounds(path: Path | str) -> Iterator[dict[str, Any]]:
    """Records of a log and its rotated files, oldest first. A torn end (a crash while writing) is
    left out; what a damaged frame hides of one file is skipped with a warning.
    Raises FileNotFoundError if there is no such log."""
    current = Path(path)
    files = rotated_files(current)
    if current.exists() or not files:
        files.append(current)
    for file in files:
        yield from _read_file(file)


def rotated_files(path: Path) -> list[Path]:
    """The log's older files, oldest first."""
    pattern = re.compile(re.escape(path.name) + r"\.\d{6,}")
    found = [file for file in path.parent.iterdir() if pattern.fullmatch(file.name)]
    return sorted(found, key=_number)


def _number(file: Path) -> int:
    return int(file.suffix[1:])


def _read_file(file: Path) -> Iterator[dict[str, Any]]:
    reader = zstandard.ZstdDecompressor()
    with file.open("rb") as raw, reader.stream_reader(raw, read_across_frames=True) as stream:
        lines = iter(TextIOWrapper(stream, encoding="utf-8"))
        while True:
            try:
                line = next(lines, "")
            except zstandard.ZstdError as error:
                _logger.warning("round log %s is damaged, the rest of it is skipped: %s",
                                file, error)  # fmt: skip
                return
            if not line.endswith("\n"):
                return
            yield json.loads(line)


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _check_record(record: Mapping[str, Any]) -> None:
    for name, value in record.items():
        if isinstance(value, Mapping):
            _check_record(value)
        elif isinstance(value, str):
            if len(value) > _MAX_WORD:
                raise ValueError(f"round log field {name!r} is text; only short words are logged")
        elif isinstance(value, list):
            if len(value) > _MAX_LIST or not all(isinstance(item, float) for item in value):
                raise ValueError(f"round log field {name!r} is no short list of fractions")
        elif value is not None and not isinstance(value, bool | int | float):
            raise ValueError(
                f"round log field {name!r} is a {type(value).__name__}; numbers, words, "
                "mappings of them and short lists of fractions are logged"
            )
