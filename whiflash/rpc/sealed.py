"""Frames between our own processes carry their number and a checksum.

HTTP/2 checks neither its content nor that a frame came once, and TCP's sum of 16 bits lets one
damaged segment in thousands pass: a flipped bit would be another token, a repeated frame a text
said twice. What is not as it was sent ends its call with DamagedError, and the call is made anew.
The seal is field 15 (fixed64) of each message, so that other tools still read them.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import grpc

from whiflash.rpc.faults import LinkLostError

SEALED_METHODS: Final = "/whiflash.rpc."
_TAG: Final = b"\x79"  # field 15, fixed64
_SEAL_BYTES: Final = 9
_NUMBERS: Final = 1 << 32
Context = grpc.aio.ServicerContext[Any, Any]


class DamagedError(LinkLostError):
    """What arrived is not what was sent; the link is to be opened anew."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message and its place in its stream, from 0; message None where it is damaged."""

    number: int
    message: Any


def seal(serialize: Callable[[Any], bytes]) -> Callable[[Frame], bytes]:
    """Of frames, by what serializes their messages."""

    def sealed(frame: Frame) -> bytes:
        data, number = serialize(frame.message), (frame.number % _NUMBERS).to_bytes(4, "little")
        return b"".join((data, _TAG, number, _checksum(data, number)))

    return sealed


def unseal(parse: Callable[[bytes], Any]) -> Callable[[bytes], Frame]:
    """The reverse. Never raises: gRPC would log it and go on."""

    def unsealed(data: bytes) -> Frame:
        body, tail = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
        number = tail[1:5]
        if len(tail) < _SEAL_BYTES or tail[:1] != _TAG or tail[5:] != _checksum(body, number):
            return Frame(-1, None)
        return Frame(int.from_bytes(number, "little"), parse(body))

    return unsealed


def _checksum(data: bytes, number: bytes) -> bytes:
    return zlib.crc32(number, zlib.crc32(data)).to_bytes(4, "little")


def only_message(frame: Frame) -> Any:
    """Of a call with one. Raises DamagedError."""
    return _message(frame, 0)


def _message(frame: Frame, number: int) -> Any:
    if frame.message is None:
        raise DamagedError("a frame was damaged on the way; the stream is opened anew")
    if frame.number != number % _NUMBERS:
        raise DamagedError(
            f"frame {frame.number} came where {number} was due: frames were lost, repeated or "
            "swapped on the way; the stream is opened anew"
        )
    return frame.message


async def numbered(messages: AsyncIterator[Any]) -> AsyncIterator[Frame]:
    """In order."""
    number = 0
    async for message in messages:
        yield Frame(number, message)
        number += 1


async def checked(frames: AsyncIterator[Frame]) -> AsyncIterator[Any]:
    """Their messages. Raises DamagedError at the first that is not as it was sent."""
    number = 0
    async for frame in frames:
        yield _message(frame, number)
        number += 1


def sealed_handler(handler: Any) -> Any:
    """A server's handler of a method whose frames are sealed."""
    if handler.response_streaming:
        run = handler.stream_stream or handler.unary_stream
        stream = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        make, wrapped = stream, _streaming(run, handler.request_streaming)
    else:
        make, wrapped = grpc.unary_unary_rpc_method_handler, _single(handler.unary_unary)
    return make(wrapped, unseal(handler.request_deserializer), seal(handler.response_serializer))


def _streaming(run: Callable[..., Any], has_many: bool) -> Callable[..., AsyncIterator[Frame]]:
    async def handle(request: Any, context: Context) -> AsyncIterator[Frame]:
        opened = checked(request) if has_many else only_message(request)
        async with aclosing(run(opened, context)) as responses:
            number = 0
            async for response in responses:
                yield Frame(number, response)
                number += 1

    return handle


def _single(run: Callable[..., Any]) -> Callable[..., Any]:
    async def handle(request: Frame, context: Context) -> Frame:
        return Frame(0, await run(only_message(request), context))

    return handle
