"""A verifier's way to one drafter: both streams, opened again after every loss."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc

from whiflash.core.errors import WhiFlashError
from whiflash.rpc.access import Access
from whiflash.rpc.channels import open_channel
from whiflash.rpc.faults import LinkLostError, error_of
from whiflash.rpc.identity import check_identity
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.v1 import common_pb2
from whiflash.rpc.v1 import drafter_service_pb2 as pb
from whiflash.rpc.v1.drafter_service_pb2_grpc import DrafterServiceStub

logger = logging.getLogger(__name__)

SILENCE_S = 2.0
"""A drafter without a word for so long is lost: links may swallow everything without an error."""

PING_S = 0.4
DESCRIBE_S = 5.0
RETRY_S, MAX_RETRY_S = 0.1, 2.0


async def describe(address: str, access: Access) -> pb.DescribeDrafterResponse:
    """Raises LinkLostError or UnauthenticatedError."""
    async with open_channel(address, access) as channel:
        call = DrafterServiceStub(channel).DescribeDrafter
        try:
            answer: pb.DescribeDrafterResponse = await call(
                pb.DescribeDrafterRequest(), timeout=DESCRIBE_S, metadata=access.metadata()
            )
        except grpc.aio.AioRpcError as failure:
            raise error_of(failure) from None
        return answer


class DrafterLink:
    """Lives on an RpcLoop; the engine's thread reads `state` and hands frames over.

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
        self.address = address
        self.client = secrets.token_hex(8)
        self.epoch = 0
        self.incarnation = ""
        self.is_up = False
        self.problem = "not reached yet"
        self.changed = threading.Condition()
        self.drafted: deque[pb.Drafted] = deque()
        self.outstanding = 0
        self._loop = loop
        self._identity = identity
        self._live = live
        self._access = access or Access()
        self._control: asyncio.Queue[pb.ControlRequest | None] = asyncio.Queue()
        self._bulk: deque[pb.BulkRequest] = deque()
        self._credits = 0
        self._ended_epoch = 0
        self._has_bulk = asyncio.Event()
        self._heard_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self.num_openings = 0
        loop.run(self._start())

    async def _start(self) -> None:
        self._task = asyncio.create_task(self._keep_open())

    def close(self) -> None:
        """Ends both streams. Idempotent."""
        if self._task is not None:
            self._loop.run(self._stop(), 10.0)

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._down("closed")

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

    async def _keep_open(self) -> None:
        wait_s = RETRY_S
        while True:
            began_s = time.monotonic()
            try:
                async with open_channel(self.address, self._access) as channel:
                    await self._session(DrafterServiceStub(channel))
                problem = "the drafter left"
            except grpc.aio.AioRpcError as failure:
                problem = str(error_of(failure))
            except (WhiFlashError, TimeoutError) as error:
                problem = str(error)
            self._down(problem)
            if time.monotonic() - began_s > MAX_RETRY_S:
                wait_s = RETRY_S
            # Jitter: all verifiers have lost a drafter at the same moment.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.5))
            wait_s = min(2 * wait_s, MAX_RETRY_S)

    async def _session(self, stub: Any) -> None:
        """One epoch. Returns, or raises, when it is over."""
        self.epoch += 1
        self._control, self._bulk = asyncio.Queue(), deque()
        has_bulk = self._has_bulk = asyncio.Event()
        opening = common_pb2.StreamOpening(
            identity=self._identity, client=self.client, epoch=self.epoch,
            live_sequences=list(self._live()),
        )  # fmt: skip
        metadata = self._access.metadata()
        self._control.put_nowait(pb.ControlRequest(opening=opening))
        control = stub.Control(self._control_frames(self._control), metadata=metadata)
        frames = self._bulk_frames(opening, has_bulk, self.epoch)
        bulk = stub.Bulk(frames, metadata=metadata)
        try:
            async with asyncio.timeout(DESCRIBE_S):
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
        number = 0
        while time.monotonic() - self._heard_s < SILENCE_S:
            number += 1
            self._control.put_nowait(pb.ControlRequest(ping=common_pb2.Ping(number=number)))
            await asyncio.sleep(PING_S)
        raise LinkLostError(f"no word for {SILENCE_S:g} s")

    @staticmethod
    async def _control_frames(
        queue: asyncio.Queue[pb.ControlRequest | None],
    ) -> AsyncIterator[pb.ControlRequest]:
        while (frame := await queue.get()) is not None:
            yield frame

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

    def _down(self, problem: str) -> None:
        if self.is_up:
            logger.warning("drafter at %s is lost: %s", self.address, problem)
        with self.changed:
            self.is_up, self.problem = False, problem
            self.changed.notify_all()
