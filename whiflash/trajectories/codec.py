"""The binary form of log entries, one for all logs.

A frame: MAGIC (2 bytes), version (1), body length (4, little endian), body, CRC-32 (4) over all in
front of it. This envelope never changes, so that every version can tell "written by a newer one"
from "damaged". A body of version 1: kind (1 byte), then fixed fields, numbers and lengths as
varints, texts as UTF-8, tokens as varints (1.8 bytes a token measured on agent text in SmolLM2's
ids; zigzag differences between neighbours take 2.1, neighbouring ids being unrelated).
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import CorruptRecordError, UnknownVersionError
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.varint import decode_ids, decode_number, encode_ids, encode_number

Entry = TrajectoryRecord | Deletion

MAGIC = b"\xf5\x57"
VERSION = 1
HEADER = struct.Struct("<2sBI")
_CRC = struct.Struct("<I")
_ID = struct.Struct("<Q")
OVERHEAD_BYTES = HEADER.size + _CRC.size
MAX_BODY_BYTES = 64 * 2**20
_TRAJECTORY, _DELETION, _VOID = 0, 1, 2
_KINDS = tuple(DeletionKind)
_TEXTS = ("namespace", "run_id", "model_label", "finish_reason", "subject", "template_id",
          "tokenizer")  # fmt: skip
_NUMBERS = ("segment", "part", "time_ms")


def encode(entry: Entry) -> bytes:
    """The entry as one frame."""
    if isinstance(entry, Deletion):
        return _framed(_deletion_body(entry))
    return _framed(_trajectory_body(entry))


def void(num_bytes: int) -> bytes:
    """A frame of that size which holds nothing: what a deleted record is overwritten with."""
    return _framed(bytes([_VOID]) + bytes(num_bytes - OVERHEAD_BYTES - 1))


def decode(frame: bytes | memoryview) -> Entry | None:
    """The entry of a frame; None where a deleted one was. Raises CorruptRecordError for bytes
    that are not what was written, UnknownVersionError for what a newer WhiFlash wrote."""
    body = memoryview(_checked_body(frame))
    kind, rest = body[0], body[1:]
    if kind == _VOID:
        return None
    try:
        if kind == _TRAJECTORY:
            return _trajectory(rest)
        if kind == _DELETION:
            return _deletion(rest)
    except (ValueError, struct.error) as error:
        raise CorruptRecordError(f"a log record makes no sense: {error}") from error
    raise CorruptRecordError(f"a log record is of no known kind ({kind})")


def frame_size(header: bytes | memoryview) -> int:
    """Bytes of the frame that begins with these HEADER.size bytes. Raises CorruptRecordError."""
    magic, _, num_bytes = HEADER.unpack(header)
    if magic != MAGIC or not 0 < num_bytes <= MAX_BODY_BYTES:
        raise CorruptRecordError("these bytes do not begin a log record")
    return int(num_bytes) + OVERHEAD_BYTES


def _framed(body: bytes) -> bytes:
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"a record of {len(body)} bytes is too large for the log")
    front = HEADER.pack(MAGIC, VERSION, len(body)) + body
    return front + _CRC.pack(zlib.crc32(front))


def _checked_body(frame: bytes | memoryview) -> bytes:
    data = bytes(frame)
    if len(data) < OVERHEAD_BYTES or frame_size(data[: HEADER.size]) != len(data):
        raise CorruptRecordError("a log record is cut off, or is none")
    if zlib.crc32(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise CorruptRecordError("a log record was altered: its checksum does not fit")
    version = data[2]
    if version != VERSION:
        raise UnknownVersionError(
            f"a log record has version {version}, this WhiFlash reads version {VERSION}; "
            "upgrade it, or use another store"
        )
    return data[HEADER.size : -_CRC.size]


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return encode_number(len(raw)) + raw


def _take_text(data: memoryview, offset: int) -> tuple[str, int]:
    size, offset = decode_number(data, offset)
    if offset + size > len(data):
        raise CorruptRecordError("a text in the record does not end")
    return str(bytes(data[offset : offset + size]), "utf-8", "surrogatepass"), offset + size


def _trajectory_body(record: TrajectoryRecord) -> bytes:
    return b"".join(
        (
            bytes([_TRAJECTORY]),
            _ID.pack(record.record_id),
            *(encode_number(getattr(record, name)) for name in _NUMBERS),
            *(_text(getattr(record, name)) for name in _TEXTS),
            encode_number(len(record.tokens)),
            encode_ids(record.tokens),
        )
    )


def _trajectory(data: memoryview) -> TrajectoryRecord:
    (record_id,), offset = _ID.unpack(data[: _ID.size]), _ID.size
    fields: dict[str, Any] = {"record_id": record_id}
    for name in _NUMBERS:
        fields[name], offset = decode_number(data, offset)
    for name in _TEXTS:
        fields[name], offset = _take_text(data, offset)
    count, offset = decode_number(data, offset)
    return TrajectoryRecord(tokens=decode_ids(data[offset:], count), **fields)


def _deletion_body(deletion: Deletion) -> bytes:
    return b"".join(
        (
            bytes([_DELETION, _KINDS.index(deletion.kind)]),
            encode_number(deletion.epoch),
            encode_number(deletion.time_ms),
            _text(deletion.namespace),
            _text(deletion.value),
        )
    )


def _deletion(data: memoryview) -> Deletion:
    if not data or data[0] >= len(_KINDS):
        raise CorruptRecordError("a tombstone in the log is of no known kind")
    epoch, offset = decode_number(data, 1)
    time_ms, offset = decode_number(data, offset)
    namespace, offset = _take_text(data, offset)
    value, offset = _take_text(data, offset)
    if offset != len(data):
        raise CorruptRecordError("a tombstone in the log is longer than it says")
    return Deletion(namespace, _KINDS[data[0]], value, epoch, time_ms)
