"""A drafter that reads taps, in another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from whiflash.core.rows import CatchUp, DraftRow
from whiflash.rpc.access import Access
from whiflash.rpc.convert import catch_up_frames
from whiflash.rpc.held_ids import HeldIds, Ids
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.remote_base import PROPOSE_S, RemoteDrafter
from whiflash.rpc.v1 import common_pb2
from whiflash.rpc.v1 import drafter_service_pb2 as pb

__all__ = ["RemoteDrafter", "RemoteTapDrafter"]


class RemoteTapDrafter(RemoteDrafter):
    """Implements TapDrafter. `fuse` is the hosted drafter's own, run where the taps are: the
    verifier keeps fused taps beside its KV, and sends those."""

    def __init__(
        self,
        name: str,
        loop: RpcLoop,
        address: str,
        identity: common_pb2.Identity,
        described: pb.DescribeDrafterResponse,
        fuse: Callable[[torch.Tensor], torch.Tensor],
        access: Access | None = None,
        propose_s: float = PROPOSE_S,
    ) -> None:
        super().__init__(name, loop, address, identity, access, propose_s)
        self.boundaries = tuple(identity.boundaries)
        self.weight_hash = identity.weight_hash
        self.context_limit = described.context_limit
        self.fused_width = described.fused_width
        self.notes = (*described.notes, f"hosted at {address}")
        self._fuse = fuse

    def fuse(self, taps: torch.Tensor) -> torch.Tensor:
        return self._fuse(taps)

    @property
    def num_bytes(self) -> int:
        """Nothing here: the drafter's process has a budget of its own."""
        return 0

    def bytes_for(self, row: CatchUp) -> int:  # noqa: ARG002
        return 0

    def open(self, sequence_id: int, namespace: str, prompt_ids: Ids, prediction_ids: Ids) -> None:  # noqa: ARG002
        """Nothing is absorbed yet, and nothing told: the first range opens it."""
        self._held[sequence_id] = HeldIds()

    def absorbed(self, sequence_id: int) -> int:
        self._sync()
        held = self._held.get(sequence_id)
        return 0 if held is None else held.end

    def absorb(self, rows: Sequence[CatchUp]) -> None:
        """Hands the ranges over, the shortest first: their rows can draft soonest. A row for which
        there is no room on the way, or no drafter, lags on."""
        self._sync()
        for row in sorted(rows, key=lambda row: len(row.token_ids)):
            held = self._held.get(row.sequence_id)
            if held is None:
                raise ValueError(f"sequence {row.sequence_id} is not open in drafter {self.name}")
            if self.is_up and self._has_room:
                self._hand_over(row, held)

    def _hand_over(self, row: CatchUp, held: HeldIds) -> None:
        if row.is_window_start or held.end == held.origin:
            held = self._held[row.sequence_id] = HeldIds(row.start)
        if row.start != held.end:
            raise ValueError(
                f"sequence {row.sequence_id} is absorbed up to {held.end}, the catch-up starts at "
                f"{row.start}"
            )
        for frame in catch_up_frames(row, held.origin, held.hash):
            self._send_bulk(pb.BulkRequest(catch_up=frame))
        held.append(row.token_ids[:-1])

    def crop(self, sequence_id: int, length: int) -> None:
        """One position more is absorbed anew: what was made of it may depend on the id behind."""
        self._sync()
        held = self._held.get(sequence_id)
        if held is None or length > held.end:
            return
        if length - 1 < held.origin:
            self._held[sequence_id] = HeldIds(max(length - 1, 0))
        else:
            held.truncate(length - 1)

    def _prepare(self, row: DraftRow) -> bool:
        held = self._held.get(row.sequence_id)
        root = len(row.context) - 1
        return held is not None and held.end == root and root < self.context_limit
