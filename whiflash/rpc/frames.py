"""Frames of streams: the first, the last, and what goes into how many of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from whiflash.core.errors import InvalidRequestError
from whiflash.rpc.channels import MAX_FRAME_BYTES
from whiflash.rpc.v1 import common_pb2
from whiflash.rpc.v1 import drafter_service_pb2 as pb

M = TypeVar("M", bound=Message)
_OVERHEAD_BYTES: Final = 8  # of a message among others: its tag and length


async def first_frame(requests: AsyncIterator[Any]) -> common_pb2.StreamOpening:
    """Raises InvalidRequestError where it is no opening."""
    async for request in requests:
        if request.WhichOneof("frame") == "opening":
            opening: common_pb2.StreamOpening = request.opening
            return opening
        break
    raise InvalidRequestError("a stream begins with its opening")


async def until_end(outbox: asyncio.Queue[Any]) -> AsyncIterator[Any]:
    """Up to None. Raises an exception that was put in."""
    while (response := await outbox.get()) is not None:
        if isinstance(response, Exception):
            raise response
        yield response


def put_all(outbox: asyncio.Queue[Any], frames: list[pb.ControlResponse]) -> None:
    """In order."""
    for frame in frames:
        outbox.put_nowait(frame)


def in_frames(messages: Iterable[M]) -> list[list[M]]:
    """In order, in parts of at most MAX_FRAME_BYTES (one message at least); an empty one where
    there are none."""
    parts: list[list[M]] = [[]]
    size = 0
    for message in messages:
        own = message.ByteSize() + _OVERHEAD_BYTES
        size += own
        if size > MAX_FRAME_BYTES and parts[-1]:
            parts.append([])
            size = own
        parts[-1].append(message)
    return parts


def drafted_frames(drafted: pb.Drafted) -> list[pb.ControlResponse]:
    """A round's trees."""
    parts = in_frames(drafted.rows)
    return [
        pb.ControlResponse(
            drafted=pb.Drafted(
                round_id=drafted.round_id, rows=rows, is_last=number == len(parts),
                draft_ms=drafted.draft_ms,
            )
        )
        for number, rows in enumerate(parts, start=1)
    ]  # fmt: skip
