"""The file of a sealed segment: a header, the directory of its runs, text and suffix array.

All numbers are little endian. Header (HEADER_BYTES): magic, version, tokens, runs, bytes of the
names, number of replaced files, digest of the namespace, CRC-32 of all that follows it, CRC-32 of
the header in front of it. Then record ids (8 bytes a run), times (8), ends, run names, subject
names (4 each), numbers of the files that this one replaces (4 each), the names as a JSON list;
then, on a multiple of 8, the text (3 bytes a token) and, on a multiple of 4, its order (4 bytes a
token but the last of each run). A file is written beside its place, synced and renamed, so that it
is whole or not there; what is not sound is removed, for the log still holds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whiflash.trajectories.deletion import Deletion
from whiflash.trajectories.errors import CorruptRecordError
from whiflash.trajectories.file_log.shelf import fsync
from whiflash.trajectories.sealed.ledger import Directory
from whiflash.trajectories.sealed.text import TOKEN_BYTES, Ids, Text

SUFFIX = ".sealed"
PART_SUFFIX = ".sealed-part"
VERSION = 1
_MAGIC = b"WFSA"
_HEADER = struct.Struct("<4sIIIII16sI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size
_RUN_BYTES = 8 + 8 + 3 * 4
_MODE = 0o600
_CRC_BITE_BYTES = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class SegmentData:
    """What a file holds. text: uint8 [3 * tokens], order: int32 [tokens - runs], see `text.py`;
    replaces: numbers of the files whose runs are in this one."""

    directory: Directory
    text: Text
    order: Ids
    replaces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Header:
    num_tokens: int
    num_runs: int
    names_bytes: int
    num_replaced: int
    crc: int

    @property
    def front_bytes(self) -> int:
        """Up to the text."""
        used = self.num_runs * _RUN_BYTES + 4 * self.num_replaced + self.names_bytes
        return _padded(HEADER_BYTES + used, 8)

    @property
    def order_at(self) -> int:
        return _padded(self.front_bytes + TOKEN_BYTES * self.num_tokens, 4)

    @property
    def num_bytes(self) -> int:
        return self.order_at + 4 * (self.num_tokens - self.num_runs)


def write_segment(path: Path, namespace: str, data: SegmentData, *, is_synced: bool) -> None:
    """Puts the file in place atomically. Raises OSError, and leaves nothing then."""
    part = path.with_suffix(PART_SUFFIX)
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(descriptor, "wb") as file:
            for piece in _pieces(namespace, data):
                file.write(piece)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    if is_synced:
        fsync(path.parent)


def _pieces(namespace: str, data: SegmentData) -> list[memoryview | bytes]:
    names = json.dumps(data.directory.names).encode("ascii")
    front = _front(data, names)
    num_tokens = data.directory.num_tokens
    gap = bytes(_padded(TOKEN_BYTES * num_tokens, 4) - TOKEN_BYTES * num_tokens)
    body: list[memoryview | bytes] = [
        front,
        data.text.data,
        gap,
        data.order.astype("<i4", copy=False).data,
    ]
    crc = 0
    for piece in body:
        crc = zlib.crc32(piece, crc)
    header = _HEADER.pack(
        _MAGIC, VERSION, num_tokens, len(data.directory), len(names), len(data.replaces),
        _digest(namespace), crc,
    )  # fmt: skip
    return [header + _CRC.pack(zlib.crc32(header)), *body]


def _front(data: SegmentData, names: bytes) -> bytes:
    directory = data.directory
    columns = (
        directory.record_ids.astype("<u8"),
        directory.times_ms.astype("<i8"),
        directory.ends.astype("<i4"),
        directory.run_names.astype("<i4"),
        directory.subject_names.astype("<i4"),
        np.array(data.replaces, "<u4"),
    )
    front = b"".join(column.tobytes() for column in columns) + names
    return front + bytes(_padded(HEADER_BYTES + len(front), 8) - HEADER_BYTES - len(front))


def read_segment(path: Path, namespace: str) -> SegmentData:
    """Text and order are mapped, not read: private pages that nothing is written to.
    Raises OSError, CorruptRecordError on what is no whole, sound segment of the namespace."""
    header = _read_header(path, namespace)
    if path.stat().st_size != header.num_bytes:
        raise CorruptRecordError(f"{path} is cut off")
    mapped = np.asarray(np.memmap(path, np.uint8, mode="c"))
    crc = 0
    for begin in range(HEADER_BYTES, len(mapped), _CRC_BITE_BYTES):
        crc = zlib.crc32(mapped[begin : begin + _CRC_BITE_BYTES].data, crc)
    if crc != header.crc:
        raise CorruptRecordError(f"{path} was altered: its checksum does not fit")
    directory, replaces = _parse_front(bytes(mapped[HEADER_BYTES : header.front_bytes]), header)
    text_end = header.front_bytes + TOKEN_BYTES * header.num_tokens
    return SegmentData(
        directory,
        mapped[header.front_bytes : text_end],
        mapped[header.order_at :].view("<i4"),
        replaces,
    )


def holds_covered(path: Path, deletion: Deletion) -> bool:
    """Whether a tombstone covers a run of the file, or nobody can tell. Raises OSError."""
    try:
        header = _read_header(path, deletion.namespace)
        with path.open("rb") as file:
            file.seek(HEADER_BYTES)
            front = file.read(header.front_bytes - HEADER_BYTES)
        directory, _ = _parse_front(front, header)
        return bool(directory.covered(deletion).any())
    except (CorruptRecordError, ValueError, IndexError):
        return True


def _read_header(path: Path, namespace: str) -> _Header:
    with path.open("rb") as file:
        raw = file.read(HEADER_BYTES)
    if len(raw) < HEADER_BYTES or _CRC.unpack(raw[-_CRC.size :])[0] != zlib.crc32(
        raw[: -_CRC.size]
    ):
        raise CorruptRecordError(f"{path} is no segment")
    magic, version, num_tokens, num_runs, names_bytes, num_replaced, digest, crc = _HEADER.unpack(
        raw[: _HEADER.size]
    )
    if magic != _MAGIC or version != VERSION or digest != _digest(namespace):
        raise CorruptRecordError(f"{path} is of another version or another namespace")
    return _Header(num_tokens, num_runs, names_bytes, num_replaced, crc)


def _parse_front(front: bytes, header: _Header) -> tuple[Directory, tuple[int, ...]]:
    num_runs, offset = header.num_runs, 0
    columns = []
    for kind, count in (
        ("<u8", num_runs), ("<i8", num_runs), ("<i4", num_runs), ("<i4", num_runs),
        ("<i4", num_runs), ("<u4", header.num_replaced),
    ):  # fmt: skip
        columns.append(np.frombuffer(front, kind, count, offset).copy())
        offset += columns[-1].nbytes
    names = json.loads(front[offset : offset + header.names_bytes])
    ids, times, ends, run_names, subjects, replaces = columns
    directory = Directory(ids, times, ends, run_names, subjects, tuple(names))
    return directory, tuple(int(number) for number in replaces)


def erase_covered(folder: Path, deletion: Deletion) -> int:
    """Removes every segment file in the folder of a namespace that holds what a tombstone covers;
    how many. Their other runs are sealed again from the log. For where nobody has them in use, or
    where who has them in use masks the runs too. Raises OSError."""
    covered = [path for path in folder.glob(f"*{SUFFIX}") if _is_covered(path, deletion)]
    for path in [*covered, *folder.glob(f"*{PART_SUFFIX}")]:
        path.unlink(missing_ok=True)
    return len(covered)


def _is_covered(path: Path, deletion: Deletion) -> bool:
    try:
        return holds_covered(path, deletion)
    except FileNotFoundError:
        return False


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}{SUFFIX}"


def segment_numbers(folder: Path) -> Sequence[int]:
    """Of the files there, ascending."""
    found = (path.stem for path in folder.glob(f"*{SUFFIX}"))
    return sorted(int(stem) for stem in found if stem.isdecimal())


def _padded(num_bytes: int, multiple: int) -> int:
    return -(-num_bytes // multiple) * multiple


def _digest(namespace: str) -> bytes:
    raw = namespace.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=16, person=b"whiflash-sealed").digest()
