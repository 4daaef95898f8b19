"""Seals of frames: whatever is changed, lost, repeated or swapped is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.rpc.sealed import DamagedError, Frame, checked, numbered, only_message, seal, unseal
from whiflash.rpc.v1 import common_pb2

SEAL, UNSEAL = seal(bytes), unseal(bytes)
CONTENTS = st.lists(st.binary(max_size=40), min_size=1, max_size=8)


async def _each(items: list[bytes]) -> AsyncIterator[bytes]:
    for item in items:
        yield item


def _sent(contents: list[bytes]) -> list[bytes]:
    async def collect() -> list[bytes]:
        return [SEAL(frame) async for frame in numbered(_each(contents))]

    return asyncio.run(collect())


def _received(wire: list[bytes]) -> list[bytes]:
    async def frames() -> AsyncIterator[Frame]:
        for data in wire:
            yield UNSEAL(data)

    async def collect() -> list[bytes]:
        return [message async for message in checked(frames())]

    return asyncio.run(collect())


@given(CONTENTS)
def test_what_is_whole_arrives(contents: list[bytes]) -> None:
    assert _received(_sent(contents)) == contents


@given(CONTENTS, st.data())
def test_a_flipped_bit_is_noticed(contents: list[bytes], data: st.DataObject) -> None:
    wire = _sent(contents)
    frame = data.draw(st.integers(0, len(wire) - 1))
    place = data.draw(st.integers(0, len(wire[frame]) - 1))
    changed = bytearray(wire[frame])
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    wire[frame] = bytes(changed)
    with pytest.raises(DamagedError, match="damaged"):
        _received(wire)


@given(CONTENTS, st.data())
def test_a_frame_that_comes_twice_or_is_missing_is_noticed(
    contents: list[bytes], data: st.DataObject
) -> None:
    wire = _sent([*contents, b"last"])
    place = data.draw(st.integers(0, len(wire) - 2))
    for broken in (
        [*wire[: place + 1], *wire[place:]],
        [*wire[:place], *wire[place + 1 :]],
        [*wire[:place], wire[place + 1], wire[place], *wire[place + 2 :]],
    ):
        with pytest.raises(DamagedError, match="was due"):
            _received(broken)


@pytest.mark.parametrize("data", [b"", b"\x79", b"x" * 9, b"\x79" + b"x" * 8])
def test_what_has_no_seal_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedError):
        only_message(UNSEAL(data))


def test_other_tools_still_read_a_sealed_message() -> None:
    data = seal(lambda message: bytes(message.SerializeToString()))(
        Frame(3, common_pb2.Ping(number=7))
    )
    assert common_pb2.Ping.FromString(data).number == 7
