"""LEB128 numbers: seven bits a byte, least first, the top bit set on all bytes but the last."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.errors import CorruptRecordError

MAX_UINT32_BYTES = 5
MAX_UINT64_BYTES = 10


def encode_number(value: int) -> bytes:
    """0 <= value < 2^64."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_number(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """The number at `offset` and the offset behind it. Raises CorruptRecordError."""
    value = 0
    for count, byte in enumerate(data[offset : offset + MAX_UINT64_BYTES]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, offset + count + 1
    raise CorruptRecordError("a number in the record does not end")


def encode_ids(ids: npt.NDArray[np.int32]) -> bytes:
    """Token ids one behind the other; a negative one takes five bytes."""
    values = ids.astype(np.int32).view(np.uint32)
    limits = np.array([1 << 7 * k for k in range(1, MAX_UINT32_BYTES)], np.uint64)
    sizes = 1 + np.searchsorted(limits, values, side="right")
    ends = np.cumsum(sizes)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - sizes
    for k in range(int(sizes.max(initial=0))):
        has_byte = sizes > k
        more = (sizes[has_byte] > k + 1).astype(np.uint8) << 7
        part = (values[has_byte] >> np.uint32(7 * k)).astype(np.uint8) & 0x7F
        out[starts[has_byte] + k] = part | more
    return out.tobytes()


def decode_ids(data: bytes | memoryview, count: int) -> npt.NDArray[np.int32]:
    """Exactly `count` ids, which must fill `data`. Raises CorruptRecordError."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 0x80) + 1
    if len(ends) != count or (count and ends[-1] != len(raw)) or (not count and len(raw)):
        raise CorruptRecordError("the record does not hold as many tokens as it says")
    starts = np.concatenate([np.zeros(1, np.intp), ends[:-1]]) if count else ends
    sizes = ends - starts
    longest = int(sizes.max(initial=0))
    if longest > MAX_UINT32_BYTES:
        raise CorruptRecordError("a token id in the record is too long")
    values = np.zeros(count, np.uint64)
    for k in range(longest):
        has_byte = sizes > k
        values[has_byte] |= (raw[starts[has_byte] + k] & 0x7F).astype(np.uint64) << np.uint64(7 * k)
    if (values >> np.uint64(32)).any():
        raise CorruptRecordError("a token id in the record is too large")
    return values.astype(np.uint32).view(np.int32)
