"""A link that goes on when the drafter at its end comes back with other weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from whiflash.core.errors import ConfigError
from whiflash.core.fuse import FuseWeights
from whiflash.rpc.access import Access
from whiflash.rpc.drafter_link import DrafterLink
from whiflash.rpc.faults import LinkLostError
from whiflash.rpc.fuse_file import read_fuse
from whiflash.rpc.identity import check_identity
from whiflash.rpc.kept_link import OPEN_S
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.sealed_channel import SealedChannel
from whiflash.rpc.v1 import common_pb2
from whiflash.rpc.v1 import drafter_service_pb2 as pb
from whiflash.rpc.v1.drafter_service_pb2_grpc import DrafterServiceStub

ACCEPT_S = 30.0


@dataclass(frozen=True, slots=True)
class Offer:
    """Another drafter for the same target, and how its fused taps are made."""

    described: pb.DescribeDrafterResponse
    fuse: FuseWeights


class FollowingLink(DrafterLink):
    """Version, target and tokenizer must fit; boundaries and weights are the drafter's. Streams of
    another one are opened when the engine has taken it over."""

    def __init__(
        self,
        loop: RpcLoop,
        address: str,
        identity: common_pb2.Identity,
        live: Callable[[], Iterable[int]],
        access: Access | None = None,
    ) -> None:
        self._offer: Offer | None = None
        self._accepted = asyncio.Event()
        super().__init__(loop, address, identity, live, access)

    def take_offer(self) -> Offer | None:
        """From the engine's thread: a drafter that waits to be accepted, once."""
        offer, self._offer = self._offer, None
        return offer

    def accept(self, offer: Offer) -> None:
        """From the engine's thread: the caches keep its taps."""
        self._loop.post(self._accept, offer.described.identity)

    def _accept(self, identity: common_pb2.Identity) -> None:
        self._identity = identity
        self._accepted.set()

    async def _session(self, channel: SealedChannel) -> None:
        stub: Any = DrafterServiceStub(channel.for_stubs)
        described = await self._describe(stub)
        if described.identity != self._identity:
            await self._hand_over(Offer(described, await self._read_fuse(stub, described)))
        await super()._session(channel)

    async def _describe(self, stub: Any) -> pb.DescribeDrafterResponse:
        """Raises MismatchError or ConfigError."""
        described: pb.DescribeDrafterResponse = await stub.DescribeDrafter(
            pb.DescribeDrafterRequest(), timeout=OPEN_S, metadata=self._access.metadata()
        )
        if not described.reads_taps:
            raise ConfigError(
                f"drafter {described.name} reads no taps and takes microseconds; let it run in "
                "the verifier"
            )
        wanted = common_pb2.Identity()
        wanted.CopyFrom(described.identity)
        wanted.version = self._identity.version
        wanted.model_fingerprint = self._identity.model_fingerprint
        wanted.tokenizer_fingerprint = self._identity.tokenizer_fingerprint
        check_identity(wanted, described.identity, "verifier")
        return described

    async def _read_fuse(self, stub: Any, described: pb.DescribeDrafterResponse) -> FuseWeights:
        """Raises LinkLostError where the drafter is another one in the middle."""
        data, total = bytearray(), 1
        while len(data) < total:
            part: pb.ReadFuseResponse = await stub.ReadFuse(
                pb.ReadFuseRequest(
                    weight_hash=described.identity.weight_hash, offset=len(data)
                ),
                timeout=OPEN_S, metadata=self._access.metadata(),
            )  # fmt: skip
            total = part.total_bytes
            if not part.data:
                raise LinkLostError("the drafter's fuse weights ended early")
            data += part.data
        try:
            return await asyncio.to_thread(read_fuse, bytes(data))
        except ValueError as error:
            raise LinkLostError(str(error)) from None

    async def _hand_over(self, offer: Offer) -> None:
        self._accepted.clear()
        self._offer = offer
        self.problem = "its weights are taken over before the next round"
        try:
            async with asyncio.timeout(ACCEPT_S):
                await self._accepted.wait()
        except TimeoutError:
            raise LinkLostError("the engine did not take the drafter's weights over") from None
        finally:
            self._offer = None
