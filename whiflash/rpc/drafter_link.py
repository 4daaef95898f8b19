"""A verifier's way to one drafter: both streams, opened again after every loss."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc

from whiflash.rpc.access import Access
from whiflash.rpc.channels import open_channel
from whiflash.rpc.faults import LinkLostError, error_of
from whiflash.rpc.identity import check_identity
from whiflash.rpc.kept_link import OPEN_S, SILENCE_S, KeptLink, queued
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.sealed_channel import SealedChannel
from whiflash.rpc.v1 import common_pb2
from whiflash.rpc.v1 import drafter_service_pb2 as pb
from whiflash.rpc.v1.drafter_service_pb2_grpc import DrafterServiceStub

logger = logging.getLogger(__name__)


async def describe(address: str, access: Access) -> pb.DescribeDrafterResponse:
    """Raises LinkLostError or UnauthenticatedError."""
    async with open_channel(address, access) as channel:
        call = DrafterServiceStub(channel.for_stubs).DescribeDrafter
        try:
            answer: pb.DescribeDrafterResponse = await call(
                pb.DescribeDrafterRequest(), timeout=OPEN_S, metadata=access.metadata()
            )
        except grpc.aio.AioRpcError as failure:
            raise error_of(failure) from None
        return answer


class DrafterLink(KeptLink):
    """Both streams; the engine's thread hands frames over.

    identity: what this end expects. live: sequences whose state the drafter is to keep.
    """

    def __init__(
        self,
        loop: RpcLoop,
        address: str,
        identity: common_pb2.Identity,
        live: Callable[[], Iterable[int]],
        access: Access | None = None,
    ) -> None:
        super().__init__("drafter", loop, address, access)
        self.epoch = 0
        self.incarnation = ""
        self.drafted: deque[pb.Drafted] = deque()
        self.outstanding = 0
        self._identity = identity
        self._live = live
        self._control: asyncio.Queue[pb.ControlRequest | None] = asyncio.Queue()
        self._bulk: deque[pb.BulkRequest] = deque()
        self._credits = 0
        self._ended_epoch = 0
        self._has_bulk = asyncio.Event()
        self._begin()

    def send_control(self, epoch: int, request: pb.ControlRequest) -> None:
        """From the engine's thread; nothing where the epoch is over."""
        self._loop.post(self._put_control, epoch, request)

    def _put_control(self, epoch: int, request: pb.ControlRequest) -> None:
        if epoch == self.epoch and self.is_up:
            self._control.put_nowait(request)

    def send_bulk(self, epoch: int, request: pb.BulkRequest) -> None:
        """As `send_control`; `outstanding` counts bytes that have not been worked off."""
        self.outstanding += request.ByteSize()
        self._loop.post(self._put_bulk, epoch, request)

    def _put_bulk(self, epoch: int, request: pb.BulkRequest) -> None:
        if epoch == self.epoch and self.is_up:
            self._bulk.append(request)
            self._has_bulk.set()

    async def _session(self, channel: SealedChannel) -> None:
        """One epoch."""
        stub: Any = DrafterServiceStub(channel.for_stubs)
        self.epoch += 1
        self._control, self._bulk = asyncio.Queue(), deque()
        has_bulk = self._has_bulk = asyncio.Event()
        opening = common_pb2.StreamOpening(
            identity=self._identity, client=self.client, epoch=self.epoch,
            live_sequences=list(self._live()),
        )  # fmt: skip
        metadata = self._access.metadata()
        self._control.put_nowait(pb.ControlRequest(opening=opening))
        control = stub.Control(queued(self._control), metadata=metadata)
        frames = self._bulk_frames(opening, has_bulk, self.epoch)
        bulk = stub.Bulk(frames, metadata=metadata)
        try:
            async with asyncio.timeout(OPEN_S):
                welcome = (await anext(aiter(control))).welcome
                check_identity(self._identity, welcome.identity, "verifier")
                self._credits = (await anext(aiter(bulk))).welcome.credits
            self._up(welcome.incarnation)
            await self._run(control, bulk)
        except StopAsyncIteration:
            raise LinkLostError("the drafter ended a stream") from None
        finally:
            control.cancel()
            bulk.cancel()
            self._ended_epoch = self.epoch
            self._control.put_nowait(None)
            has_bulk.set()

    async def _run(self, control: Any, bulk: Any) -> None:
        tasks = [
            asyncio.create_task(self._read_control(control)),
            asyncio.create_task(self._read_bulk(bulk)),
            asyncio.create_task(self._watch()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    task.result()

    async def _watch(self) -> None:
        control = self._control
        await self._ping(lambda ping: control.put_nowait(pb.ControlRequest(ping=ping)))
        raise LinkLostError(f"no word for {SILENCE_S:g} s")

    async def _bulk_frames(
        self, opening: common_pb2.StreamOpening, has_bulk: asyncio.Event, epoch: int
    ) -> AsyncIterator[pb.BulkRequest]:
        """As many as there are credits for, while the epoch lasts."""
        yield pb.BulkRequest(opening=opening)
        while True:
            await has_bulk.wait()
            has_bulk.clear()
            while self.is_up and self._bulk and self._credits > 0:
                self._credits -= 1
                yield self._bulk.popleft()
            if self._ended_epoch >= epoch:
                return

    async def _read_control(self, control: Any) -> None:
        async for response in control:
            self._heard_s = time.monotonic()
            kind = response.WhichOneof("frame")
            if kind == "drafted":
                self._note_drafted(response.drafted)
            elif kind == "leaving":
                raise LinkLostError("the drafter is leaving")

    def _note_drafted(self, drafted: pb.Drafted) -> None:
        with self.changed:
            self.drafted.append(drafted)
            self.changed.notify_all()

    async def _read_bulk(self, bulk: Any) -> None:
        async for response in bulk:
            self._heard_s = time.monotonic()
            self._credits += response.credit.frames
            if not self._bulk and self._credits:
                self.outstanding = 0
            self._has_bulk.set()

    def _up(self, incarnation: str) -> None:
        logger.info("drafter at %s is up, epoch %d", self.address, self.epoch)
        self._heard_s = time.monotonic()
        with self.changed:
            self.incarnation, self.problem = incarnation, ""
            self.outstanding = 0
            self.num_openings += 1
            self.is_up = True
            self.changed.notify_all()
