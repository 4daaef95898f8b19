"""The grpc.aio server: services, health, reflection, limits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from whiflash.api.v1 import generation_service_pb2, model_service_pb2, trajectory_service_pb2
from whiflash.core.errors import ConfigError
from whiflash.rpc.kept_server import KeptServer
from whiflash.serving.generation import GenerationService
from whiflash.serving.grpc.adapter import GrpcAdapter
from whiflash.serving.grpc.generation import GenerationServicer
from whiflash.serving.grpc.model import ModelServicer
from whiflash.serving.grpc.trajectories import TrajectoryServicer
from whiflash.serving.trajectories.desk import StoreDesk

GENERATION = generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"]
MODEL = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"]
TRAJECTORY = trajectory_service_pb2.DESCRIPTOR.services_by_name["TrajectoryService"]
SERVICES = (GENERATION.full_name, MODEL.full_name)
READINESS_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """max_concurrent: open calls of all clients; more are RESOURCE_EXHAUSTED. stall_limit_s: how
    long a client may take no message before its call is given up."""

    max_request_bytes: int = 16 << 20
    max_concurrent: int = 1024
    stall_limit_s: float = 60.0


class GrpcServer:
    """Serves one GenerationService on `host`:`port`; port 0 takes a free one, see `port`.
    For the event loop that starts it. Without a `desk` there is no TrajectoryService."""

    def __init__(
        self,
        service: GenerationService,
        host: str = "127.0.0.1",
        port: int = 9000,
        limits: GrpcLimits | None = None,
        desk: StoreDesk | None = None,
    ) -> None:
        self._service = service
        self._desk = desk
        self._host = host
        self._limits = limits or GrpcLimits()
        self._health = health.aio.HealthServicer()
        self._watch: asyncio.Task[None] | None = None
        self._server = KeptServer(self._make)
        self.port = port

    async def start(self) -> None:
        """Binds and serves. Raises ConfigError if the address is taken."""
        await self._show_readiness()
        await self._server.start()
        self._watch = asyncio.create_task(self._watch_readiness())

    def _make(self) -> grpc.aio.Server:
        limits, auth = self._limits, self._service.auth
        server = grpc.aio.server(options=_options(limits))
        adapter = GrpcAdapter(auth, limits.stall_limit_s, limits.max_concurrent)
        models = ModelServicer(self._service, limits.max_request_bytes)
        handlers = [
            adapter.handler(GENERATION, GenerationServicer(self._service)),
            adapter.handler(MODEL, models),
        ]
        if self._desk is not None:
            handlers.append(adapter.handler(TRAJECTORY, TrajectoryServicer(self._desk)))
        server.add_generic_rpc_handlers(handlers)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        try:
            self.port = server.add_insecure_port(self._address)
            return server
        except RuntimeError:
            raise ConfigError(
                f"gRPC cannot listen on {self._address}: taken, or not an address of this "
                "machine; choose another --grpc-port"
            ) from None

    @property
    def _address(self) -> str:
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def _services(self) -> tuple[str, ...]:
        return SERVICES if self._desk is None else (*SERVICES, TRAJECTORY.full_name)

    @property
    def num_revivals(self) -> int:
        """How often it had to listen anew."""
        return self._server.num_revivals

    async def stop(self, grace_s: float = 0.0) -> None:
        """Refuses new calls; open ones have `grace_s` seconds. Drain the service first, so that
        they end with a status of their own. Idempotent."""
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)

    async def _watch_readiness(self) -> None:
        was_ready = self._service.is_ready
        while True:
            await asyncio.sleep(READINESS_POLL_S)
            if self._service.is_ready is not was_ready:
                was_ready = self._service.is_ready
                await self._show_readiness()

    async def _show_readiness(self) -> None:
        serving = health_pb2.HealthCheckResponse.SERVING
        status = serving if self._service.is_ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._services):
            await self._health.set(name, status)


def _options(limits: GrpcLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.max_request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", limits.max_concurrent),
        ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share its calls
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ]
