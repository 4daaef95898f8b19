"""A verifier's stream to the router, opened again after every loss."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc

from whiflash.core.costs import CostCurve
from whiflash.core.errors import WhiFlashError
from whiflash.rpc.access import Access
from whiflash.rpc.channels import open_channel
from whiflash.rpc.convert_routes import curve_message
from whiflash.rpc.faults import LinkLostError, error_of
from whiflash.rpc.identity import check_identity
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.v1 import common_pb2
from whiflash.rpc.v1 import router_service_pb2 as pb
from whiflash.rpc.v1.router_service_pb2_grpc import RouterServiceStub

logger = logging.getLogger(__name__)
SILENCE_S, PING_S, OPEN_S = 2.0, 0.4, 5.0
RETRY_S, MAX_RETRY_S = 0.1, 2.0
MAX_KEPT = 4096


class RouterLink:
    """Lives on an RpcLoop; the engine's thread hands frames over and takes answers under
    `changed`. What is sent while the router is down: outcomes are kept, the latest MAX_KEPT
    frames, rows are not."""

    def __init__(
        self,
        loop: RpcLoop,
        address: str,
        identity: common_pb2.Identity,
        policy: str,
        curve: CostCurve,
        access: Access | None = None,
    ) -> None:
        self.address = address
        self.client = secrets.token_hex(8)
        self.is_up = False
        self.problem = "not reached yet"
        self.num_openings = 0
        self.changed = threading.Condition()
        self.predictions: deque[pb.RoutePredictions] = deque()
        self.state: tuple[int, bytes, bytes] | None = None
        self._loop = loop
        self._opening = pb.RouteOpening(
            opening=common_pb2.StreamOpening(identity=identity, client=self.client),
            policy=policy, verify_curve=curve_message(curve),
        )  # fmt: skip
        self._access = access or Access()
        self._outbox: asyncio.Queue[pb.RouteRequest | None] = asyncio.Queue()
        self._kept: deque[pb.RouteRequest] = deque(maxlen=MAX_KEPT)
        self._heard_s = 0.0
        self._task: asyncio.Task[None] | None = None
        loop.run(self._start())

    async def _start(self) -> None:
        self._task = asyncio.create_task(self._keep_open())

    def close(self) -> None:
        """Idempotent."""
        if self._task is not None:
            self._loop.run(self._stop(), 10.0)

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._down("closed")

    def send(self, request: pb.RouteRequest) -> None:
        """From the engine's thread."""
        self._loop.post(self._put, request)

    def _put(self, request: pb.RouteRequest) -> None:
        if self.is_up:
            self._outbox.put_nowait(request)
        elif request.WhichOneof("frame") == "outcomes":
            self._kept.append(request)

    async def _keep_open(self) -> None:
        wait_s = RETRY_S
        while True:
            began_s = time.monotonic()
            try:
                async with open_channel(self.address, self._access) as channel:
                    await self._session(RouterServiceStub(channel))
                problem = "the router left"
            except grpc.aio.AioRpcError as failure:
                problem = str(error_of(failure))
            except (WhiFlashError, TimeoutError) as error:
                problem = str(error)
            self._down(problem)
            if time.monotonic() - began_s > MAX_RETRY_S:
                wait_s = RETRY_S
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.5))
            wait_s = min(2 * wait_s, MAX_RETRY_S)

    async def _session(self, stub: Any) -> None:
        self._outbox = asyncio.Queue()
        self._opening.opening.epoch += 1
        self._outbox.put_nowait(pb.RouteRequest(opening=self._opening))
        call = stub.Route(self._frames(self._outbox), metadata=self._access.metadata())
        watch: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(OPEN_S):
                welcome = (await anext(aiter(call))).welcome
            check_identity(self._opening.opening.identity, welcome.identity, "verifier")
            self._up()
            watch = asyncio.create_task(self._watch(call))
            await self._read(call)
        except StopAsyncIteration:
            raise LinkLostError("the router ended the stream") from None
        finally:
            call.cancel()
            self._outbox.put_nowait(None)
            if watch is not None:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch

    @staticmethod
    async def _frames(
        queue: asyncio.Queue[pb.RouteRequest | None],
    ) -> AsyncIterator[pb.RouteRequest]:
        while (frame := await queue.get()) is not None:
            yield frame

    async def _watch(self, call: Any) -> None:
        """Ends a call that has nothing to say: links may swallow everything without an error."""
        number = 0
        while time.monotonic() - self._heard_s < SILENCE_S:
            number += 1
            self._outbox.put_nowait(pb.RouteRequest(ping=common_pb2.Ping(number=number)))
            await asyncio.sleep(PING_S)
        call.cancel()

    async def _read(self, call: Any) -> None:
        data = bytearray()
        try:
            async for response in call:
                self._heard_s = time.monotonic()
                kind = response.WhichOneof("frame")
                if kind == "predictions":
                    with self.changed:
                        self.predictions.append(response.predictions)
                        self.changed.notify_all()
                elif kind == "policy":
                    part = response.policy
                    data += part.data
                    if part.is_last:
                        self.state = (part.policy_version, bytes(data), part.digest)
                        data.clear()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LinkLostError(f"no word for {SILENCE_S:g} s") from None

    def _up(self) -> None:
        logger.info("router at %s is up", self.address)
        self._heard_s = time.monotonic()
        while self._kept:
            self._outbox.put_nowait(self._kept.popleft())
        self.num_openings += 1
        with self.changed:
            self.is_up, self.problem = True, ""

    def _down(self, problem: str) -> None:
        if self.is_up:
            logger.warning("router at %s is lost: %s", self.address, problem)
        with self.changed:
            self.is_up, self.problem = False, problem
            self.changed.notify_all()
