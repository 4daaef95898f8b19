"""Every log entry survives the trip, and nothing that was altered passes for one."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.trajectories import codec
from whiflash.trajectories.codec import Entry
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import CorruptRecordError, UnknownVersionError
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.varint import decode_ids, decode_number, encode_ids, encode_number

NUMBERS = st.integers(0, 2**64 - 1)
WORDS = st.text(max_size=40)
IDS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=60)
FIELDS = [
    "namespace", "run_id", "segment", "model_label", "finish_reason", "subject", "template_id",
    "tokenizer", "part", "time_ms", "record_id",
]  # fmt: skip
RECORDS = st.builds(
    TrajectoryRecord,
    namespace=st.text(min_size=1, max_size=40),
    run_id=st.text(st.characters(exclude_categories=()), max_size=20),  # lone surrogates too
    tokens=IDS.map(lambda ids: np.array(ids, np.int32)),
    segment=NUMBERS, model_label=WORDS, finish_reason=WORDS, subject=WORDS, template_id=WORDS,
    tokenizer=WORDS, part=NUMBERS, time_ms=NUMBERS, record_id=NUMBERS,
)  # fmt: skip
DELETIONS = st.one_of(
    st.builds(
        Deletion, st.text(min_size=1, max_size=40),
        st.sampled_from([DeletionKind.RUN, DeletionKind.SUBJECT]),
        st.text(min_size=1, max_size=40), NUMBERS, NUMBERS,
    ),
    st.builds(Deletion, st.text(min_size=1), st.just(DeletionKind.NAMESPACE), st.just("")),
)  # fmt: skip
ENTRIES = st.one_of(RECORDS, DELETIONS)


def same(entry: Entry | None, other: Entry) -> bool:
    if isinstance(other, Deletion) or not isinstance(entry, TrajectoryRecord):
        return entry == other
    fields = all(getattr(entry, name) == getattr(other, name) for name in FIELDS)
    return fields and entry.tokens.tolist() == other.tokens.tolist()


@settings(max_examples=200, deadline=None)
@given(ENTRIES)
def test_every_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert same(codec.decode(codec.encode(entry)), entry)


@settings(max_examples=60, deadline=None)
@given(ENTRIES, st.integers(1, 255))
def test_a_flip_of_any_byte_is_detected(entry: Entry, flip: int) -> None:
    frame = codec.encode(entry)
    for place in range(len(frame)):
        altered = frame[:place] + bytes([frame[place] ^ flip]) + frame[place + 1 :]
        with pytest.raises(CorruptRecordError):
            codec.decode(altered)


@settings(max_examples=60, deadline=None)
@given(ENTRIES, st.binary(min_size=1, max_size=3))
def test_a_frame_that_is_cut_off_or_too_long_is_detected(entry: Entry, more: bytes) -> None:
    frame = codec.encode(entry)
    for size in range(len(frame)):
        with pytest.raises(CorruptRecordError):
            codec.decode(frame[:size])
    with pytest.raises(CorruptRecordError):
        codec.decode(frame + more)


def with_checksum(body: bytes, version: int = codec.VERSION) -> bytes:
    front = codec.HEADER.pack(codec.MAGIC, version, len(body)) + body
    return front + struct.pack("<I", zlib.crc32(front))


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=1, max_size=80))
def test_any_bytes_with_a_right_checksum_are_an_entry_or_refused(body: bytes) -> None:
    try:
        entry = codec.decode(with_checksum(body))
    except CorruptRecordError:
        return
    assert entry is None or isinstance(entry, TrajectoryRecord | Deletion)


@given(st.integers(0, 255).filter(lambda version: version != codec.VERSION))
def test_another_version_is_refused_in_words(version: int) -> None:
    frame = codec.encode(TrajectoryRecord("a", "", np.arange(3)))
    body = frame[codec.HEADER.size : -4]
    with pytest.raises(UnknownVersionError, match=f"version {version}.*upgrade"):
        codec.decode(with_checksum(body, version))


@given(st.integers(codec.OVERHEAD_BYTES + 1, 400))
def test_a_void_frame_of_any_size_holds_nothing(size: int) -> None:
    frame = codec.void(size)
    assert len(frame) == size
    assert codec.decode(frame) is None


def test_too_large_a_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_BODY_BYTES", 100)
    codec.encode(TrajectoryRecord("a", "", np.zeros(60, np.int32)))
    with pytest.raises(ValueError, match="too large"):
        codec.encode(TrajectoryRecord("a", "", np.zeros(100, np.int32)))


@given(IDS)
def test_ids_as_varints_come_back(ids: list[int]) -> None:
    tokens = np.array(ids, np.int32)
    data = encode_ids(tokens)
    assert decode_ids(data, len(ids)).tolist() == ids
    assert data == b"".join(encode_number(token & 0xFFFFFFFF) for token in ids)
    with pytest.raises(CorruptRecordError):
        decode_ids(data, len(ids) + 1)


@pytest.mark.parametrize(
    "data", [b"\x80", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x01", b"\x01\x80"]
)
def test_ids_that_are_too_large_or_do_not_end_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_ids(data, 1)


@given(NUMBERS, st.binary(max_size=3))
def test_numbers_come_back(value: int, more: bytes) -> None:
    data = encode_number(value)
    assert decode_number(b"x" + data + more, 1) == (value, 1 + len(data))
    with pytest.raises(CorruptRecordError):
        decode_number(data[:-1] + b"\x80" * 10, 0)
