"""A verifier's own gRPC server: the service, health, and an orderly end."""

from __future__ import annotations

from whiflash.rpc.access import Access
from whiflash.rpc.rpc_metrics import RpcMetrics
from whiflash.rpc.servers import RpcServer, RpcService
from whiflash.rpc.v1 import verifier_service_pb2
from whiflash.rpc.v1.verifier_service_pb2_grpc import add_VerifierServiceServicer_to_server
from whiflash.serving.remote.servicer import VerifierServicer

SERVICE = verifier_service_pb2.DESCRIPTOR.services_by_name["VerifierService"]
MAX_MESSAGE_BYTES = 64 << 20
"""Prompts travel whole."""


class VerifierServer:
    """Serves on `host`:`port`; port 0 takes a free one, see `address`. For the event loop that
    starts it."""

    def __init__(
        self,
        servicer: VerifierServicer,
        host: str = "127.0.0.1",
        port: int = 0,
        access: Access | None = None,
        metrics: RpcMetrics | None = None,
    ) -> None:
        self.servicer = servicer
        service = RpcService(
            SERVICE, lambda server: add_VerifierServiceServicer_to_server(servicer, server)
        )
        self._server = RpcServer(
            [service], host, port, access, metrics, max_message_bytes=MAX_MESSAGE_BYTES
        )

    @property
    def address(self) -> str:
        """host:port, known once it was started."""
        return self._server.address

    async def start(self) -> None:
        """Raises ConfigError if the address is taken, or open to others without a token."""
        await self._server.start()

    async def drain(self, timeout_s: float) -> bool:
        """As VerifierServicer.drain; health says so."""
        await self._server.set_ready(is_ready=False)
        return await self.servicer.drain(timeout_s)

    async def stop(self, grace_s: float = 0.0) -> None:
        """Ends what is left of calls after `grace_s`. Idempotent."""
        await self._server.stop(grace_s)
