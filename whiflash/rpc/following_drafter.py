"""A drafter that reads taps in another process, which may come back with other weights."""

from __future__ import annotations

from collections.abc import Callable

import torch

from whiflash.core.fuse import FuseWeights
from whiflash.rpc.access import Access
from whiflash.rpc.following_link import FollowingLink
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.remote_base import PROPOSE_S
from whiflash.rpc.remote_drafter import RemoteTapDrafter
from whiflash.rpc.v1 import common_pb2
from whiflash.rpc.v1 import drafter_service_pb2 as pb

MakeFuse = Callable[[FuseWeights], Callable[[torch.Tensor], torch.Tensor]]


class FollowingTapDrafter(RemoteTapDrafter):
    """Implements FollowingDrafter. Nothing of the drafter's checkpoint is read here: its process
    tells boundaries and widths, and hands over what makes its fused taps.

    identity: version, target, tokenizer. num_taken_over: drafters that stood there one by one.
    """

    link_type = FollowingLink
    link: FollowingLink

    def __init__(
        self,
        name: str,
        loop: RpcLoop,
        address: str,
        identity: common_pb2.Identity,
        make_fuse: MakeFuse,
        access: Access | None = None,
        propose_s: float = PROPOSE_S,
    ) -> None:
        self._make_fuse = make_fuse
        self.num_taken_over = 0
        nothing = pb.DescribeDrafterResponse(notes=["not reached yet"])
        super().__init__(name, loop, address, identity, nothing, _no_taps, access, propose_s)
        self.notes = ("hosted, not reached yet",)

    def take_over(self) -> bool:
        offer = self.link.take_offer()
        if offer is None:
            return False
        described = offer.described
        self._fuse = self._make_fuse(offer.fuse)
        self.boundaries = tuple(described.identity.boundaries)
        self.weight_hash = described.identity.weight_hash
        self.context_limit = described.context_limit
        self.fused_width = described.fused_width
        self.notes = (*described.notes, f"hosted at {self.link.address}")
        self._forget_all()
        self.num_taken_over += 1
        self.link.accept(offer)
        return True

    def give_up(self) -> None:
        self.context_limit = 0


def _no_taps(taps: torch.Tensor) -> torch.Tensor:
    raise ValueError(f"no drafter has told how to fuse {tuple(taps.shape)} taps")
