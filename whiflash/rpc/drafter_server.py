"""DrafterService: a local drafter, hosted for verifiers in other processes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from whiflash.core.protocols import Drafter, TapDrafter
from whiflash.obs.tracing import Tracer
from whiflash.rpc.access import Access
from whiflash.rpc.channels import MAX_FRAME_BYTES
from whiflash.rpc.drafter_desk import DraftDesk, Round
from whiflash.rpc.faults import MismatchError
from whiflash.rpc.frames import drafted_frames, first_frame, put_all, until_end
from whiflash.rpc.identity import check_identity, drafter_identity
from whiflash.rpc.rpc_metrics import RpcMetrics
from whiflash.rpc.servers import RpcServer, RpcService
from whiflash.rpc.sessions import Sessions
from whiflash.rpc.v1 import common_pb2, drafter_service_pb2
from whiflash.rpc.v1 import drafter_service_pb2 as pb
from whiflash.rpc.v1.drafter_service_pb2_grpc import (
    DrafterServiceServicer,
    add_DrafterServiceServicer_to_server,
)

Context = grpc.aio.ServicerContext[Any, Any]
CREDITS = 64
DESCRIPTOR = drafter_service_pb2.DESCRIPTOR.services_by_name["DrafterService"]


@dataclass(frozen=True, slots=True)
class HostedTarget:
    """The target that a hosted drafter was loaded for."""

    model_fingerprint: str
    tokenizer_fingerprint: str


class DrafterServicer(DrafterServiceServicer):
    """For one event loop; the drafter runs on the desk's thread. forget_s: how long a verifier
    that is gone may take to come back before its states are dropped."""

    def __init__(self, desk: DraftDesk, target: HostedTarget, forget_s: float = 60.0) -> None:
        self.desk = desk
        self.incarnation = secrets.token_hex(8)
        self.identity = drafter_identity(
            desk.drafter, target.model_fingerprint, target.tokenizer_fingerprint
        )
        self.sessions = Sessions(forget_s, self._forget)
        self._fuse: bytes | None = None

    def _forget(self, client: str) -> None:
        self.desk.submit(partial(self.desk.keep_only, client, ()))

    async def DescribeDrafter(  # noqa: N802
        self, request: pb.DescribeDrafterRequest, context: Context  # noqa: ARG002
    ) -> pb.DescribeDrafterResponse:  # fmt: skip
        """Answered to any version, so that both can be named."""
        drafter = self.desk.drafter
        described = pb.DescribeDrafterResponse(
            identity=self.identity, incarnation=self.incarnation, name=drafter.name
        )
        if isinstance(drafter, TapDrafter):
            described.reads_taps = True
            described.context_limit = drafter.context_limit
            described.fused_width = drafter.fused_width
            described.notes.extend(drafter.notes)
        return described

    async def ReadFuse(  # noqa: N802
        self, request: pb.ReadFuseRequest, context: Context  # noqa: ARG002
    ) -> pb.ReadFuseResponse:  # fmt: skip
        """A part of it, from `offset` on. Raises MismatchError for weights that are not here."""
        if request.weight_hash != self.identity.weight_hash:
            raise MismatchError(
                f"weights {request.weight_hash} are not here any more, but "
                f"{self.identity.weight_hash}; ask anew"
            )
        if self._fuse is None:
            self._fuse = await asyncio.wrap_future(self.desk.fuse_file())
        data = self._fuse[request.offset : request.offset + MAX_FRAME_BYTES]
        return pb.ReadFuseResponse(data=data, total_bytes=len(self._fuse))

    async def Control(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.ControlRequest], context: Context  # noqa: ARG002
    ) -> AsyncIterator[pb.ControlResponse]:  # fmt: skip
        """Until the client ends it, or a later epoch takes over."""
        opening = await first_frame(request_iterator)
        check_identity(self.identity, opening.identity, "drafter")
        outbox: asyncio.Queue[pb.ControlResponse | Exception | None] = asyncio.Queue()
        with self.sessions.stream(opening.client, opening.epoch, "control", outbox.put_nowait):
            live = list(opening.live_sequences)
            self.desk.submit(partial(self.desk.keep_only, opening.client, live))
            yield pb.ControlResponse(welcome=self._welcome())
            reader = asyncio.create_task(self._read_control(request_iterator, opening, outbox))
            try:
                async for response in until_end(outbox):
                    yield response
            finally:
                reader.cancel()

    def _welcome(self) -> common_pb2.StreamWelcome:
        return common_pb2.StreamWelcome(
            identity=self.identity, incarnation=self.incarnation, credits=CREDITS
        )

    async def _read_control(
        self,
        requests: AsyncIterator[pb.ControlRequest],
        opening: common_pb2.StreamOpening,
        outbox: asyncio.Queue[Any],
    ) -> None:
        loop = asyncio.get_running_loop()

        def reply(drafted: pb.Drafted) -> None:
            frames = drafted_frames(drafted)
            if not loop.is_closed():
                loop.call_soon_threadsafe(put_all, outbox, frames)

        try:
            async for request in requests:
                kind = request.WhichOneof("frame")
                if kind == "propose":
                    asked = Round(opening.client, opening.epoch, request.propose, reply)
                    self.desk.submit(partial(self.desk.propose, asked))
                elif kind == "ping":
                    outbox.put_nowait(pb.ControlResponse(pong=request.ping))
            outbox.put_nowait(None)
        except Exception as error:  # noqa: BLE001 - told to the verifier by the stream's status
            outbox.put_nowait(error)

    async def Bulk(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.BulkRequest], context: Context  # noqa: ARG002
    ) -> AsyncIterator[pb.BulkResponse]:  # fmt: skip
        """Each frame that was worked off gives a credit back."""
        opening = await first_frame(request_iterator)
        check_identity(self.identity, opening.identity, "drafter")
        outbox: asyncio.Queue[pb.BulkResponse | Exception | None] = asyncio.Queue()
        with self.sessions.stream(opening.client, opening.epoch, "bulk", outbox.put_nowait):
            yield pb.BulkResponse(welcome=self._welcome())
            reader = asyncio.create_task(self._read_bulk(request_iterator, opening, outbox))
            try:
                async for response in until_end(outbox):
                    yield response
            finally:
                reader.cancel()

    async def _read_bulk(
        self,
        requests: AsyncIterator[pb.BulkRequest],
        opening: common_pb2.StreamOpening,
        outbox: asyncio.Queue[Any],
    ) -> None:
        loop, num_frames = asyncio.get_running_loop(), 0
        credit = pb.BulkResponse(credit=pb.Credit(frames=1))

        def done(number: int) -> None:
            self.desk.count(opening.client, opening.epoch, number)
            if not loop.is_closed():
                loop.call_soon_threadsafe(outbox.put_nowait, credit)

        try:
            async for request in requests:
                num_frames += 1
                self.desk.submit(self._work(opening.client, request))
                self.desk.submit(partial(done, num_frames))
            outbox.put_nowait(None)
        except Exception as error:  # noqa: BLE001 - told to the verifier by the stream's status
            outbox.put_nowait(error)

    def _work(self, client: str, request: pb.BulkRequest) -> Callable[[], None]:
        desk, kind = self.desk, request.WhichOneof("frame")
        if kind == "catch_up":
            return partial(desk.catch_up, client, request.catch_up)
        if kind == "sequence":
            return partial(desk.open, client, request.sequence)
        if kind == "closed":
            return partial(desk.shut, client, list(request.closed.sequence_ids))
        return partial(desk.learn, client, request.outcomes)


class DrafterServer:
    """A drafter's process: desk, service, server. `make` loads the drafter on the desk's thread;
    the constructor raises what it raises."""

    def __init__(
        self,
        make: Callable[[], Drafter],
        target: HostedTarget,
        host: str = "127.0.0.1",
        port: int = 0,
        max_bytes: int = 1 << 30,
        access: Access | None = None,
        metrics: RpcMetrics | None = None,
        tracer: Tracer | None = None,
        forget_s: float = 60.0,
    ) -> None:
        self.desk = DraftDesk(make, max_bytes)
        self.servicer = DrafterServicer(self.desk, target, forget_s)
        service = RpcService(
            DESCRIPTOR, lambda server: add_DrafterServiceServicer_to_server(self.servicer, server)
        )
        self.server = RpcServer([service], host, port, access, metrics, tracer)

    @property
    def address(self) -> str:
        return self.server.address

    async def start(self) -> str:
        """Its address. Raises ConfigError."""
        await self.server.start()
        return self.address

    async def drain(self) -> None:
        """Tells verifiers to go on without it; rounds that run still end."""
        await self.server.set_ready(False)
        self.servicer.sessions.tell("control", pb.ControlResponse(leaving=pb.Leaving()))

    async def stop(self, grace_s: float = 0.0) -> None:
        """Idempotent."""
        await self.server.stop(grace_s)
        self.servicer.sessions.close()
        await asyncio.to_thread(self.desk.close)
