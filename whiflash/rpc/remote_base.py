"""A drafter in another process, behind the core protocols: rounds, epochs, what is told.

The engine's thread calls it; frames travel on an RpcLoop. Nothing here blocks but `poll` and
`propose`, each up to its limit. Whatever happens on the way costs rows their draft, never more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.rows import DraftRow, Feedback
from whiflash.rpc.access import Access
from whiflash.rpc.convert import feedback_message, ids_bytes, query_message
from whiflash.rpc.drafter_link import DrafterLink
from whiflash.rpc.frames import in_frames
from whiflash.rpc.held_ids import HeldIds
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.rounds import AskedRound, Rounds
from whiflash.rpc.v1 import common_pb2
from whiflash.rpc.v1 import drafter_service_pb2 as pb

Ids = npt.NDArray[np.int32]
MAX_OUTSTANDING_BYTES = 64 << 20
PROPOSE_S = 1.0


class RemoteDrafter:
    """Implements Drafter for a hosted drafter that reads no taps; `RemoteTapDrafter` for others.

    identity: what the drafter must be, else its stream is refused and the arm stays down.
    is_up: it can be asked now. num_resyncs: rows whose state was not what it should have been.
    """

    is_free = False
    link_type: ClassVar[type[DrafterLink]] = DrafterLink

    def __init__(
        self,
        name: str,
        loop: RpcLoop,
        address: str,
        identity: common_pb2.Identity,
        access: Access | None = None,
        propose_s: float = PROPOSE_S,
    ) -> None:
        self.name = name
        self._propose_s = propose_s
        self._held: dict[int, HeldIds] = {}
        self._openings: dict[int, pb.SequenceOpening] = {}
        self._told: set[int] = set()
        self._epoch = 0
        self._incarnation = ""
        self._num_bulk = 0
        self._rounds = Rounds()
        self.num_resyncs = 0
        self.link = self.link_type(loop, address, identity, self._live, access)

    def _live(self) -> list[int]:
        return list(self._held) + list(self._openings)

    @property
    def is_up(self) -> bool:
        return self.link.is_up

    @property
    def expected_ms(self) -> float:
        """From asking to having a round."""
        return self._rounds.expected_ms

    @property
    def host_ms(self) -> float:
        """What the last round took the drafter itself; the rest was on the way."""
        return self._rounds.host_ms

    @property
    def num_late(self) -> int:
        """Rounds that came when nobody waited any more."""
        return self._rounds.num_late

    def open(self, sequence_id: int, namespace: str, prompt_ids: Ids, prediction_ids: Ids) -> None:
        """Told when it is first drafted for: an arm that is never chosen costs nothing."""
        self._openings[sequence_id] = pb.SequenceOpening(
            sequence_id=sequence_id, namespace=namespace, prompt_ids=ids_bytes(prompt_ids),
            prediction_ids=ids_bytes(prediction_ids),
        )  # fmt: skip
        self._held[sequence_id] = HeldIds()

    def close(self, sequence_id: int) -> None:
        """Idempotent."""
        self._openings.pop(sequence_id, None)
        self._told.discard(sequence_id)
        if self._held.pop(sequence_id, None) is not None and self.is_up:
            closed = pb.SequenceClosing(sequence_ids=[sequence_id])
            self._send_bulk(pb.BulkRequest(closed=closed))

    def matched(self, sequence_id: int) -> int:  # noqa: ARG002
        return 0

    def learn(self, feedback: Sequence[Feedback]) -> None:
        """Frames of outcomes; dropped while the drafter is down."""
        self._sync()
        messages = [feedback_message(entry) for entry in (feedback if self.is_up else ())]
        for part in in_frames(messages):
            if part:
                self._send_bulk(pb.BulkRequest(outcomes=pb.OutcomeFrame(feedback=part)))

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        """Waits for the round, `propose_s` at most."""
        round_id = self.ask(rows)
        trees = self.poll(round_id, self._propose_s)
        if trees is None:
            self.drop(round_id)
        return [DraftTree.empty()] * len(rows) if trees is None else trees

    def ask(self, rows: Sequence[DraftRow]) -> int:
        """Sends a round, without waiting; its id. Rows that cannot be drafted get empty trees."""
        self._sync()
        places = [place for place, row in enumerate(rows) if self.is_up and self._prepare(row)]
        asked = AskedRound(list(rows), places, self._epoch, is_complete=not places)
        round_id = self._rounds.ask(asked)
        if places:
            message = pb.Propose(
                round_id=round_id,
                bulk_frames=self._num_bulk,
                rows=[self._propose_row(rows[place]) for place in places],
            )
            self.link.send_control(self._epoch, pb.ControlRequest(propose=message))
        return round_id

    def poll(self, round_id: int, timeout_s: float = 0.0) -> list[DraftTree] | None:
        """The round's trees, waited for at most `timeout_s`; None while they are not here. A round
        is taken once."""
        end_s = time.perf_counter() + timeout_s
        while True:
            self._sync()
            asked = self._rounds.get(round_id)
            if asked is None or asked.is_complete:
                self._rounds.take(round_id)
                return [] if asked is None else asked.in_order()
            with self.link.changed:
                left_s = end_s - time.perf_counter()
                if not self.link.drafted and self.is_up:
                    if left_s <= 0:
                        return None
                    self.link.changed.wait(left_s)

    def drop(self, round_id: int) -> None:
        """Nobody waits for it any more."""
        self._rounds.drop(round_id)

    def shut(self) -> None:
        """Ends the streams. Idempotent."""
        self.link.close()

    def _sync(self) -> None:
        """What happened on the loop since the last call: trees, a loss, a new epoch."""
        link = self.link
        while link.drafted:
            asked = self._rounds.note(link.drafted.popleft(), time.perf_counter())
            if asked is None:
                continue
            for place, resync in asked.resyncs.items():
                self._resync(asked.rows[place].sequence_id, resync)
        if not link.is_up or link.epoch != self._epoch:
            self._rounds.lose()
        if link.is_up and link.epoch != self._epoch:
            if link.incarnation != self._incarnation:
                self._forget_all()
            self._epoch, self._incarnation, self._num_bulk = link.epoch, link.incarnation, 0

    def _forget_all(self) -> None:
        """Another process: it holds nothing. What pays for its catch-up will be absorbed anew,
        row by row, as the router chooses the arm again."""
        self._told.clear()
        for sequence_id in self._held:
            self._held[sequence_id] = HeldIds()

    def _resync(self, sequence_id: int, resync: pb.Resync) -> None:
        """Goes on from what the drafter holds, if that is a part of this text."""
        self.num_resyncs += 1
        held = self._held.get(sequence_id)
        if held is None:
            return
        is_ours = (
            resync.origin == held.origin
            and resync.origin < resync.absorbed <= held.end
            and held.hash_at(resync.absorbed) == resync.hash
        )
        if is_ours:
            held.truncate(resync.absorbed - 1)
        else:
            self._told.discard(sequence_id)
            self._held[sequence_id] = HeldIds()

    def _prepare(self, row: DraftRow) -> bool:
        """What the row lacks is sent on the bulk stream; whether it can be asked for."""
        held = self._held.get(row.sequence_id)
        opening = self._openings.get(row.sequence_id)
        if held is None or opening is None or not self._has_room:
            return False
        if row.sequence_id not in self._told:
            self._told.add(row.sequence_id)
            self._send_bulk(pb.BulkRequest(sequence=opening))
        root = len(row.context) - 1
        if held.end < root:
            frame = pb.CatchUpFrame(
                sequence_id=row.sequence_id, start=held.end, origin=0, hash=held.hash,
                token_ids=ids_bytes(row.context[held.end :]),
            )  # fmt: skip
            held.append(row.context[held.end : root])
            self._send_bulk(pb.BulkRequest(catch_up=frame))
        return True

    def _propose_row(self, row: DraftRow) -> pb.ProposeRow:
        held, root = self._held[row.sequence_id], len(row.context) - 1
        return pb.ProposeRow(
            query=query_message(row, root), origin=held.origin, hash=held.hash_at(root)
        )

    @property
    def _has_room(self) -> bool:
        return self.link.outstanding < MAX_OUTSTANDING_BYTES

    def _send_bulk(self, request: pb.BulkRequest) -> None:
        self._num_bulk += 1
        self.link.send_bulk(self._epoch, request)

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        assert self._told <= self._held.keys(), "told of what is not open"
        assert self._openings.keys() <= self._held.keys()
        assert len(self._rounds) <= 2, f"{len(self._rounds)} rounds are open"
