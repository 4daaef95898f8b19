"""Numbered records in zstd JSON-lines shards. What is resumed is byte for byte what would have
been written at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import zstandard

from whiflash.core.errors import ConfigError
from whiflash.training.files import write_whole

Record = Mapping[str, Any]
_LEVEL = 12
_OPEN = "open.jsonl"
_KEY = "number"


class RecordShards:
    """Records 0 to total - 1 in any order of arrival, in shards of `size` by their numbers.

    A record is safe once `add` returns: it waits in a journal until its shard is complete. One
    process writes at a time. Raises ConfigError on a damaged shard.
    """

    def __init__(self, folder: Path, total: int, size: int) -> None:
        self._folder = folder
        self._total, self._size = total, size
        folder.mkdir(parents=True, exist_ok=True)
        self._done = {k for k in range(self._num_shards) if self._path(k).is_file()}
        self._open: dict[int, Record] = {}
        for record in self._read_open():
            if not self.has(record[_KEY]):
                self._open[record[_KEY]] = record

    @property
    def _num_shards(self) -> int:
        return -(-self._total // self._size)

    def _path(self, shard: int) -> Path:
        return self._folder / f"{shard:05d}.jsonl.zst"

    def has(self, number: int) -> bool:
        """Whether the record is there."""
        return number // self._size in self._done or number in self._open

    @property
    def num_records(self) -> int:
        """Records that are there."""
        whole = sum(len(self._numbers(shard)) for shard in self._done)
        return whole + len(self._open)

    def missing(self) -> Iterator[int]:
        """Numbers that are not there, ascending."""
        return (number for number in range(self._total) if not self.has(number))

    def add(self, record: Record) -> None:
        """Keeps a record that is not there yet."""
        number = record[_KEY]
        if self.has(number) or not 0 <= number < self._total:
            raise ValueError(f"record {number} is there already, or not one of {self._total}")
        with (self._folder / _OPEN).open("ab") as file:
            file.write(_line(record))
        self._open[number] = record
        self._close(number // self._size)

    def _close(self, shard: int) -> None:
        """Writes the shard if it is complete."""
        numbers = self._numbers(shard)
        if not all(number in self._open for number in numbers):
            return
        lines = b"".join(_line(self._open.pop(number)) for number in numbers)
        write_whole(self._path(shard), zstandard.ZstdCompressor(level=_LEVEL).compress(lines))
        self._done.add(shard)
        left = b"".join(_line(record) for record in self._open.values())
        write_whole(self._folder / _OPEN, left)

    def _numbers(self, shard: int) -> range:
        return range(shard * self._size, min((shard + 1) * self._size, self._total))

    def _read_open(self) -> Iterator[Record]:
        """The journal; a last line torn by a crash counts for nothing."""
        path = self._folder / _OPEN
        if not path.is_file():
            return
        lines = path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if len(whole) < len(lines):
            write_whole(path, b"".join(whole))
        for line in whole:
            yield json.loads(line)

    def records(self) -> Iterator[Record]:
        """All records of complete shards, ascending, then those of the journal."""
        for shard in sorted(self._done):
            yield from read_shard(self._path(shard))
        for number in sorted(self._open):
            yield self._open[number]


def read_shard(path: Path) -> list[Record]:
    """The records of one shard. Raises ConfigError if it is damaged."""
    try:
        data = zstandard.ZstdDecompressor().decompress(path.read_bytes())
        return [json.loads(line) for line in data.splitlines()]
    except (OSError, ValueError, zstandard.ZstdError) as error:
        raise ConfigError(f"{path} is damaged; delete it and run the command again") from error


def _line(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
