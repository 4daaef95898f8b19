"""A verifier's stream to the router, opened again after every loss."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from whiflash.core.costs import CostCurve
from whiflash.rpc.access import Access
from whiflash.rpc.convert_routes import curve_message
from whiflash.rpc.faults import LinkLostError
from whiflash.rpc.identity import check_identity
from whiflash.rpc.kept_link import OPEN_S, SILENCE_S, KeptLink, queued
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.sealed_channel import SealedChannel
from whiflash.rpc.v1 import common_pb2
from whiflash.rpc.v1 import router_service_pb2 as pb
from whiflash.rpc.v1.router_service_pb2_grpc import RouterServiceStub

logger = logging.getLogger(__name__)
MAX_KEPT = 4096


@dataclass(frozen=True, slots=True)
class PolicyState:
    """A version of the router's policy; text: as a person wrote it."""

    version: int
    text: str
    data: bytes
    digest: bytes


class RouterLink(KeptLink):
    """The engine's thread hands frames over and takes answers under `changed`. What is sent while
    the router is down: outcomes are kept, the latest MAX_KEPT frames, rows are not.

    policy: the one that the router must run; "" where any will do. state: the last version."""

    def __init__(
        self,
        loop: RpcLoop,
        address: str,
        identity: common_pb2.Identity,
        policy: str,
        curve: CostCurve,
        access: Access | None = None,
    ) -> None:
        super().__init__("router", loop, address, access)
        self.predictions: deque[pb.RoutePredictions] = deque()
        self.state: PolicyState | None = None
        self._opening = pb.RouteOpening(
            opening=common_pb2.StreamOpening(identity=identity, client=self.client),
            policy=policy, verify_curve=curve_message(curve),
        )  # fmt: skip
        self._outbox: asyncio.Queue[pb.RouteRequest | None] = asyncio.Queue()
        self._kept: deque[pb.RouteRequest] = deque(maxlen=MAX_KEPT)
        self._begin()

    def send(self, request: pb.RouteRequest) -> None:
        """From the engine's thread."""
        self._loop.post(self._put, request)

    def _put(self, request: pb.RouteRequest) -> None:
        if self.is_up:
            self._outbox.put_nowait(request)
        elif request.WhichOneof("frame") in ("outcomes", "changed"):
            self._kept.append(request)

    async def _session(self, channel: SealedChannel) -> None:
        stub: Any = RouterServiceStub(channel.for_stubs)
        self._outbox = asyncio.Queue()
        self._opening.opening.epoch += 1
        self._outbox.put_nowait(pb.RouteRequest(opening=self._opening))
        call = stub.Route(queued(self._outbox), metadata=self._access.metadata())
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

    async def _watch(self, call: Any) -> None:
        outbox = self._outbox
        await self._ping(lambda ping: outbox.put_nowait(pb.RouteRequest(ping=ping)))
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
                        self.state = PolicyState(
                            part.policy_version, part.policy, bytes(data), part.digest
                        )
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
