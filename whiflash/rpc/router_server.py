"""RouterService: the policy and its learner, for all verifiers of a cluster."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc

from whiflash.core.errors import InvalidRequestError
from whiflash.core.rows import Outcome, RouteRow
from whiflash.obs.tracing import Tracer
from whiflash.rpc.access import Access
from whiflash.rpc.convert_routes import prediction_message, read_curve, read_outcome, read_row
from whiflash.rpc.faults import MismatchError
from whiflash.rpc.frames import in_frames, until_end
from whiflash.rpc.identity import check_identity, identity
from whiflash.rpc.policy_versions import PolicyVersions, check_remote
from whiflash.rpc.rpc_metrics import RpcMetrics
from whiflash.rpc.servers import RpcServer, RpcService
from whiflash.rpc.sessions import Sessions
from whiflash.rpc.v1 import common_pb2, router_service_pb2
from whiflash.rpc.v1 import router_service_pb2 as pb
from whiflash.rpc.v1.router_service_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)

Context = grpc.aio.ServicerContext[Any, Any]
DESCRIPTOR = router_service_pb2.DESCRIPTOR.services_by_name["RouterService"]
_SEQUENCE_BITS = 40


class RouterServicer(RouterServiceServicer):
    """For one event loop. predictions: rows answered, by version."""

    def __init__(self, policy: str, model_fingerprint: str, publish_outcomes: int) -> None:
        check_remote(policy)
        self.policy = policy
        self.incarnation = secrets.token_hex(8)
        self.identity = identity(model_fingerprint, "")
        self.versions: PolicyVersions | None = None
        self.predictions: Counter[int] = Counter()
        self.sessions = Sessions(0.0, self._forget)
        self._numbers: dict[str, int] = {}
        self._weights: dict[str, str] = {}
        self._next_number = 0
        self._publish_outcomes = publish_outcomes

    def _forget(self, client: str) -> None:
        self._numbers.pop(client, None)

    async def Route(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.RouteRequest], context: Context  # noqa: ARG002
    ) -> AsyncIterator[pb.RouteResponse]:  # fmt: skip
        """One verifier, until it goes or a later epoch takes over."""
        first = await anext(request_iterator, pb.RouteRequest())
        if first.WhichOneof("frame") != "opening":
            raise InvalidRequestError("a stream begins with its opening")
        opening = first.opening
        self._check(opening)
        outbox: asyncio.Queue[pb.RouteResponse | Exception | None] = asyncio.Queue()
        client = opening.opening.client
        with self.sessions.stream(client, opening.opening.epoch, "route", outbox.put_nowait):
            if client not in self._numbers:
                self._next_number += 1
                self._numbers[client] = self._next_number
            versions = self._versions(opening)
            for response in (self._welcome(), *versions.parts()):
                yield response
            reader = asyncio.create_task(self._read(request_iterator, client, outbox))
            try:
                async for response in until_end(outbox):
                    yield response
            finally:
                reader.cancel()

    def _check(self, opening: pb.RouteOpening) -> None:
        check_identity(self.identity, opening.opening.identity, "router")
        if opening.policy not in ("", self.policy):
            raise MismatchError(
                f"the verifier has policy {opening.policy!r}, the router {self.policy!r}; "
                "configure the same one"
            )

    def _versions(self, opening: pb.RouteOpening) -> PolicyVersions:
        if self.versions is None:
            curve = read_curve(list(opening.verify_curve))
            target = opening.opening.identity.model_fingerprint
            self.versions = PolicyVersions(self.policy, curve, self._publish_outcomes, target)
        return self.versions

    def change_policy(self, text: str) -> None:
        """Another policy decides from now on, beginning with what it knows at its start. Raises
        ConfigError for one that no router can run for others."""
        check_remote(text)
        self.policy = text
        old = self.versions
        if old is not None:
            self.versions = PolicyVersions(
                text, old.curve, self._publish_outcomes, old.target, last_number=old.number
            )
            self._tell(self.versions)

    def _tell(self, versions: PolicyVersions) -> None:
        for part in versions.parts():
            self.sessions.tell("route", part)

    def _welcome(self) -> pb.RouteResponse:
        welcome = common_pb2.StreamWelcome(identity=self.identity, incarnation=self.incarnation)
        return pb.RouteResponse(welcome=welcome)

    async def _read(
        self,
        requests: AsyncIterator[pb.RouteRequest],
        client: str,
        outbox: asyncio.Queue[Any],
    ) -> None:
        rows: list[RouteRow] = []
        try:
            async for request in requests:
                kind = request.WhichOneof("frame")
                if kind == "rows":
                    rows += [self._own(read_row(row), client) for row in request.rows.rows]
                    if request.rows.is_last:
                        self._answer(request.rows.round_id, rows, outbox)
                        rows = []
                elif kind == "outcomes":
                    self._learn(request.outcomes, client)
                elif kind == "changed":
                    self._forget_arm(request.changed)
                elif kind == "ping":
                    outbox.put_nowait(pb.RouteResponse(pong=request.ping))
            outbox.put_nowait(None)
        except Exception as error:  # noqa: BLE001 - told to the verifier by the stream's status
            outbox.put_nowait(error)

    def _own(self, row: RouteRow, client: str) -> RouteRow:
        """Sequences of different verifiers may have one number."""
        number = self._numbers[client] << _SEQUENCE_BITS
        return replace(row, sequence_id=number | row.sequence_id)

    def _answer(self, round_id: int, rows: list[RouteRow], outbox: asyncio.Queue[Any]) -> None:
        versions = self._standing
        parts = in_frames(prediction_message(p) for p in versions.predict(rows))
        self.predictions[versions.number] += len(rows)
        for number, part in enumerate(parts, start=1):
            frame = pb.RoutePredictions(
                round_id=round_id, policy_version=versions.number, predictions=part,
                is_last=number == len(parts),
            )  # fmt: skip
            outbox.put_nowait(pb.RouteResponse(predictions=frame))

    @property
    def _standing(self) -> PolicyVersions:
        assert self.versions is not None, "made when the first verifier comes"
        return self.versions

    def _learn(self, message: pb.RouteOutcomes, client: str) -> None:
        outcomes = [self._owned(read_outcome(entry), client) for entry in message.outcomes]
        if self._standing.learn(outcomes):
            self._tell(self._standing)

    def _forget_arm(self, change: pb.ArmChange) -> None:
        """Each verifier tells of it; the first one counts."""
        if self._weights.get(change.arm) != change.weight_hash:
            self._weights[change.arm] = change.weight_hash
            self._standing.forget_arm(change.arm, change.weight_hash)
            self._tell(self._standing)

    def _owned(self, outcome: Outcome, client: str) -> Outcome:
        return replace(outcome, row=self._own(outcome.row, client))


class RouterServer:
    """A router's process. Raises ConfigError for a policy that it cannot run for others."""

    def __init__(
        self,
        policy: str,
        model_fingerprint: str,
        host: str = "127.0.0.1",
        port: int = 0,
        publish_outcomes: int = 256,
        access: Access | None = None,
        metrics: RpcMetrics | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.servicer = RouterServicer(policy, model_fingerprint, publish_outcomes)
        service = RpcService(
            DESCRIPTOR, lambda server: add_RouterServiceServicer_to_server(self.servicer, server)
        )
        self.server = RpcServer([service], host, port, access, metrics, tracer)

    @property
    def address(self) -> str:
        return self.server.address

    async def start(self) -> str:
        """Its address. Raises ConfigError."""
        await self.server.start()
        return self.address

    @property
    def policy(self) -> str:
        """The one that decides, as a person wrote it."""
        return self.servicer.policy

    def change_policy(self, policy: str) -> None:
        """On the loop that serves: every verifier gets its first version at once. Raises
        ConfigError."""
        self.servicer.change_policy(policy)

    async def stop(self, grace_s: float = 0.0) -> None:
        """Idempotent."""
        await self.server.stop(grace_s)
        self.servicer.sessions.close()
