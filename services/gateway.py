"""The gateway as a Serve ingress: the public gRPC services and OpenAI HTTP on one replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.message import Message
from ray import serve
from ray.serve.grpc_util import RayServegRPCContext
from ray.serve.handle import DeploymentHandle

from services.config import ClusterSettings
from services.directory import ServeDirectory
from services.names import GATEWAY, VERIFIER
from services.one_request_id import OneRequestId
from whiflash.api.v1 import generation_service_pb2 as pb
from whiflash.api.v1 import trajectory_service_pb2 as store_pb
from whiflash.core.errors import DeadlineExceededError
from whiflash.serving.caller import CallContext
from whiflash.serving.errors import message_of, status_of
from whiflash.serving.grpc.generation import GenerationServicer
from whiflash.serving.grpc.metadata import call_context, request_id_in, text_metadata, trailers
from whiflash.serving.grpc.model import ModelServicer
from whiflash.serving.grpc.requests import refuse_unknown
from whiflash.serving.grpc.trajectories import TrajectoryServicer
from whiflash.serving.openai.app import create_app
from whiflash.serving.remote.gateway import Gateway as GatewayParts

MAX_REQUEST_BYTES = 16 << 20


@serve.deployment(name=GATEWAY)
@serve.ingress()
class Gateway:
    """`settings`: ClusterSettings.fixed_table(). A method of each name in the public protos; Serve
    takes a request to the method that its gRPC call names."""

    async def __init__(self, settings: dict[str, Any], verifiers: DeploymentHandle) -> None:
        read = ClusterSettings.of(settings)
        table = read.cluster.gateway
        self._drain_s = read.server.drain_s
        self._verifiers = verifiers
        self._parts = GatewayParts(
            read.engine,
            read.server,
            ServeDirectory(VERIFIER),
            read.auth(),
            max_verifiers=read.cluster.verifier.max_replicas,
            access=read.access(),
        )
        await verifiers.status.remote()  # from now on Serve tells this process the addresses
        await self._parts.start(table.start_s)
        self._generation = GenerationServicer(self._parts.service)
        self._models = ModelServicer(self._parts.service, MAX_REQUEST_BYTES)

    def __serve_build_asgi_app__(self) -> Any:
        """Called by Serve after the constructor."""
        return OneRequestId(create_app(self._parts.service, self._parts.backend.tokenizer))

    async def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[Message]:
        try:
            call = self._call(request, grpc_context)
            async with aclosing(self._generation.Generate(request, call)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:
            _tell(grpc_context, error)
            raise

    async def GenerateOnce(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        return await self._unary(self._generation.GenerateOnce, request, grpc_context)

    async def Cancel(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        """Of calls on this replica."""
        return await self._unary(self._generation.Cancel, request, grpc_context)

    async def Tokenize(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        return await self._unary(self._generation.Tokenize, request, grpc_context)

    async def GetPlan(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        return await self._unary(self._models.GetPlan, request, grpc_context)

    async def ListArms(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        return await self._unary(self._models.ListArms, request, grpc_context)

    async def GetLimits(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        return await self._unary(self._models.GetLimits, request, grpc_context)

    async def GetLoad(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        return await self._unary(self._models.GetLoad, request, grpc_context)

    async def Import(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        def run(request: Any, call: CallContext) -> Awaitable[Message]:
            return self._trajectories().Import(request, call)

        return await self._unary(run, request, grpc_context)

    async def Export(  # noqa: N802
        self, request: store_pb.ExportRequest, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[Message]:
        try:
            call = self._call(request, grpc_context)
            async with aclosing(self._trajectories().Export(request, call)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:
            _tell(grpc_context, error)
            raise

    async def GetStats(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        def run(request: Any, call: CallContext) -> Awaitable[Message]:
            return self._trajectories().GetStats(request, call)

        return await self._unary(run, request, grpc_context)

    async def Delete(  # noqa: N802
        self, request: Message, grpc_context: RayServegRPCContext
    ) -> Message:
        def run(request: Any, call: CallContext) -> Awaitable[Message]:
            return self._trajectories().Delete(request, call)

        return await self._unary(run, request, grpc_context)

    def _trajectories(self) -> TrajectoryServicer:
        """Raises NotFoundError where verifiers share no store."""
        return TrajectoryServicer(self._parts.store.require_desk())

    async def status(self) -> dict[str, Any]:
        """Plan and verifiers, for `whiflash status`."""
        return self._parts.backend.plan()

    def check_health(self) -> None:
        """A gateway without verifiers is sound: it says so to its callers, and waits for them."""
        self._parts.pool.check_integrity()

    async def __del__(self) -> None:
        """Open calls end, or are told to go on elsewhere."""
        await self._parts.service.drain(self._drain_s)
        await self._parts.stop()

    async def _unary(
        self,
        run: Callable[[Any, CallContext], Awaitable[Message]],
        request: Message,
        grpc_context: RayServegRPCContext,
    ) -> Message:
        try:
            return await run(request, self._call(request, grpc_context))
        except Exception as error:
            _tell(grpc_context, error)
            raise

    def _call(self, request: Message, grpc_context: RayServegRPCContext) -> CallContext:
        """Serve keeps the client's deadline, and cancels the method when it has passed."""
        metadata = text_metadata(grpc_context.invocation_metadata())
        request_id = request_id_in(metadata)
        grpc_context.set_trailing_metadata(list(trailers(request_id)))
        refuse_unknown(request)
        return call_context(metadata, request_id, None, self._parts.service.auth)


def _tell(grpc_context: RayServegRPCContext, error: Exception) -> None:
    """The status that the client gets. Serve drops trailing metadata of calls that fail."""
    if isinstance(error, asyncio.TimeoutError):
        error = DeadlineExceededError("the deadline passed before the answer was complete")
    grpc_context.set_code(grpc.StatusCode[status_of(error).grpc])
    grpc_context.set_details(message_of(error))
