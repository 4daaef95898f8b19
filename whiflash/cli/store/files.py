"""Files of recorded runs, one record after the other, each with its place."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from whiflash.core.errors import ConfigError

LINES = (".jsonl", ".ndjson")
WHOLE = (".json", ".traj")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """place: `FILE:LINE`, or `FILE record N` in a list; value: what stands there; problem: why it
    could not be read, "" if it could; num_bytes: of its JSON."""

    place: str
    value: Any = None
    problem: str = ""
    num_bytes: int = 0


def read_files(paths: list[Path], on_bytes: Callable[[int], None]) -> Iterator[FoundRecord]:
    """All records of the files in order. `on_bytes` hears how many bytes of a file were read
    since it was last told. Raises ConfigError on a file of another kind, OSError."""
    for path in paths:
        try:
            with path.open("rb") as raw:
                yield from _records(path, io.BufferedReader(_CountingReader(raw, on_bytes)))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ConfigError(f"{path} is damaged: {error}") from None


def total_bytes(paths: list[Path]) -> int:
    """Raises ConfigError on a file that is not there, or of no known kind."""
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"{path} is no file")
        _kind(path)
    return sum(path.stat().st_size for path in paths)


def is_read(path: Path) -> bool:
    """Whether files of that ending are read."""
    return _suffix(path) in LINES + WHOLE


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def _kind(path: Path) -> str:
    suffix = _suffix(path)
    if suffix not in LINES + WHOLE:
        raise ConfigError(
            f"{path}: {suffix or 'no ending'} is not read; name it "
            f"{', '.join(LINES + WHOLE)} (or .gz of these)"
        )
    return suffix


def _records(path: Path, raw: IO[bytes]) -> Iterator[FoundRecord]:
    stream: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    if _kind(path) in LINES:
        yield from _lines(path, stream)
        return
    data = stream.read()
    whole = _parsed(str(path), data)
    first, *others = data.splitlines() or [b""]
    if whole.problem and others and not _parsed("", first).problem:
        yield from _lines(path, io.BytesIO(data))  # JSON lines, as BFCL calls .json
        return
    if whole.problem or not isinstance(whole.value, list):
        yield whole
        return
    for number, value in enumerate(whole.value, 1):
        yield FoundRecord(f"{path} record {number}", value, num_bytes=len(json.dumps(value)))


def _lines(path: Path, stream: IO[bytes]) -> Iterator[FoundRecord]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield _parsed(f"{path}:{number}", line)


def _parsed(place: str, data: bytes) -> FoundRecord:
    try:
        value = json.loads(data)
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()  # half of one alone is no text
        return FoundRecord(place, value, num_bytes=len(data))
    except (ValueError, RecursionError) as error:
        return FoundRecord(place, problem=f"it is no JSON: {error}")


class _CountingReader(io.RawIOBase):
    """Tells how far a file was read."""

    def __init__(self, inner: IO[bytes], on_bytes: Callable[[int], None]) -> None:
        self._inner = inner
        self._on_bytes = on_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        self._on_bytes(len(data))
        return len(data)
