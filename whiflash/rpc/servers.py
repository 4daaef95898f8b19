"""Our own servers: one or more services with health, reflection, limits and an orderly end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from whiflash.core.errors import ConfigError
from whiflash.obs.tracing import Tracer
from whiflash.rpc.access import Access
from whiflash.rpc.channels import MAX_MESSAGE_BYTES
from whiflash.rpc.interceptors import ServerInterceptor
from whiflash.rpc.kept_server import KeptServer
from whiflash.rpc.rpc_metrics import RpcMetrics

MAX_OPEN_CALLS = 4096


@dataclass(frozen=True, slots=True)
class RpcService:
    """A service of ours. add: hands it to a server, like `lambda s:
    add_XServicer_to_server(servicer, s)`."""

    descriptor: ServiceDescriptor
    add: Callable[[grpc.aio.Server], None]


class RpcServer:
    """Serves on `host`:`port`; port 0 takes a free one, see `address`. For the event loop that
    starts it. A host that other machines can reach needs a token or mTLS (`Access`)."""

    def __init__(
        self,
        services: Sequence[RpcService],
        host: str = "127.0.0.1",
        port: int = 0,
        access: Access | None = None,
        metrics: RpcMetrics | None = None,
        tracer: Tracer | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._services = tuple(services)
        self._host = host
        self.port = port
        self._access = access or Access()
        self._interceptor = ServerInterceptor(self._access, metrics, tracer)
        self._max_message_bytes = max_message_bytes
        self._health = health.aio.HealthServicer()
        self._server = KeptServer(self._make)

    @property
    def address(self) -> str:
        """host:port, an IPv6 host in brackets; known once it was started."""
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    async def start(self, is_ready: bool = True) -> None:
        """Binds and serves. Raises ConfigError if the address is taken, or open to others."""
        self._access.check_address(self._host)
        await self.set_ready(is_ready)
        await self._server.start()

    def _make(self) -> grpc.aio.Server:
        server = grpc.aio.server(interceptors=[self._interceptor], options=self._options)
        for service in self._services:
            service.add(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        self.port = self._bind(server)
        return server

    def _bind(self, server: grpc.aio.Server) -> int:
        tls = self._access.tls
        try:
            if tls is None:
                return server.add_insecure_port(self.address)
            return server.add_secure_port(self.address, tls.server_credentials())
        except RuntimeError:
            raise ConfigError(
                f"cannot listen on {self.address}: taken, or not an address of this machine; "
                "choose another one"
            ) from None

    async def set_ready(self, is_ready: bool) -> None:
        """What health checks are told."""
        serving, not_serving = (
            health_pb2.HealthCheckResponse.SERVING,
            health_pb2.HealthCheckResponse.NOT_SERVING,
        )
        for name in ("", *self._names):
            await self._health.set(name, serving if is_ready else not_serving)

    @property
    def num_revivals(self) -> int:
        """How often it had to listen anew."""
        return self._server.num_revivals

    async def stop(self, grace_s: float = 0.0) -> None:
        """Refuses new calls; open ones have `grace_s` seconds. Idempotent."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(service.descriptor.full_name for service in self._services)

    @property
    def _options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_receive_message_length", self._max_message_bytes),
            ("grpc.max_send_message_length", self._max_message_bytes),
            ("grpc.max_concurrent_streams", MAX_OPEN_CALLS),
            ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share its calls
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ]
