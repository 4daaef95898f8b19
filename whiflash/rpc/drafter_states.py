"""What a drafter's process holds for its verifiers: one local sequence per (verifier, sequence)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

from whiflash.core.protocols import Drafter, TapDrafter
from whiflash.core.rows import CatchUp
from whiflash.rpc.convert import read_catch_up, read_ids
from whiflash.rpc.held_ids import HeldIds
from whiflash.rpc.v1 import drafter_service_pb2 as pb

Key = tuple[str, int]
_NOTHING = np.zeros(0, np.int32)


class HeldSequence:
    """local_id: what the drafter knows it as. Its ids are those of absorbed positions."""

    def __init__(self, local_id: int, origin: int) -> None:
        self.local_id = local_id
        self.ids = HeldIds(origin)


class DrafterStates:
    """Opens, absorbs, crops and closes in one drafter; the least recently used give way when
    `max_bytes` of draft K/V are reached. One thread uses it.

    num_holes: frames that did not fit what is held. num_dropped: states that gave way.
    """

    def __init__(self, drafter: Drafter, max_bytes: int) -> None:
        self._drafter = drafter
        self._taps = drafter if isinstance(drafter, TapDrafter) else None
        self._max_bytes = max_bytes
        self._held: OrderedDict[Key, HeldSequence] = OrderedDict()
        self._next_id = 0
        self.num_holes = 0
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Key) -> HeldSequence | None:
        """Used just now, if it is held."""
        held = self._held.get(key)
        if held is not None:
            self._held.move_to_end(key)
        return held

    def open(self, client: str, message: pb.SequenceOpening) -> None:
        """A sequence of a drafter that reads no taps."""
        key = (client, message.sequence_id)
        self.close([key])
        held = self._new(key, 0)
        prompt, prediction = read_ids(message.prompt_ids), read_ids(message.prediction_ids)
        self._drafter.open(held.local_id, message.namespace, prompt, prediction)

    def _new(self, key: Key, origin: int) -> HeldSequence:
        self._next_id += 1
        self._held[key] = HeldSequence(self._next_id, origin)
        return self._held[key]

    def absorb(self, frames: Sequence[tuple[str, pb.CatchUpFrame]]) -> None:
        """Frames of different sequences, in one call of the drafter."""
        rows: list[CatchUp] = []
        in_use = {(client, frame.sequence_id) for client, frame in frames}
        for client, frame in frames:
            row = self._row((client, frame.sequence_id), frame, in_use)
            if row is not None:
                rows.append(row)
        if rows and self._taps is not None:
            self._taps.absorb(rows)

    def _row(self, key: Key, frame: pb.CatchUpFrame, in_use: set[Key]) -> CatchUp | None:
        """What is to be absorbed, its ids noted already; None where there is a hole."""
        held = self._ready(key, frame)
        if held is None:
            self.num_holes += 1
            return None
        ids = read_ids(frame.token_ids)
        if self._taps is None:
            held.ids.append(ids[:-1])
            return None
        message = read_catch_up(frame)
        begins = frame.start == held.ids.origin and frame.start > 0
        row = CatchUp(held.local_id, frame.start, ids, message.fused, begins)
        if not self._make_room(self._taps, row, in_use):
            self.close([key])
            return None
        held.ids.append(ids[:-1])
        return row

    def _ready(self, key: Key, frame: pb.CatchUpFrame) -> HeldSequence | None:
        """The state cut to where the frame starts, or a new one where it begins."""
        held = self.get(key)
        if frame.start == frame.origin and self._taps is not None:
            self.close([key])
            held = self._new(key, frame.origin)
            self._taps.open(held.local_id, "", _NOTHING, _NOTHING)
            return held
        if held is None or held.ids.origin != frame.origin or frame.start > held.ids.end:
            return None
        if frame.start < held.ids.end:
            self._cut(held, frame.start)
        return held if self._fits(held, frame) else None

    @staticmethod
    def _fits(held: HeldSequence, frame: pb.CatchUpFrame) -> bool:
        """Later frames of one range carry no hash: they follow the first one."""
        return frame.hash in (held.ids.hash, 0)

    def _cut(self, held: HeldSequence, end: int) -> None:
        """Drafters differ in what a crop costs them: EAGLE-3 loses one position more."""
        held.ids.truncate(end)
        if self._taps is not None:
            self._taps.crop(held.local_id, end + 1)
            if self._taps.absorbed(held.local_id) > end:
                self._taps.crop(held.local_id, end)

    def _make_room(self, taps: TapDrafter, row: CatchUp, in_use: set[Key]) -> bool:
        needed = taps.bytes_for(row)
        for key in [key for key in self._held if key not in in_use]:
            if taps.num_bytes + needed <= self._max_bytes:
                break
            self.close([key])
            self.num_dropped += 1
        return needed <= self._max_bytes

    def close(self, keys: Iterable[Key]) -> None:
        """Those that are held."""
        for key in keys:
            held = self._held.pop(key, None)
            if held is not None:
                self._drafter.close(held.local_id)

    def keep_only(self, client: str, sequence_ids: Iterable[int]) -> None:
        """A client's other sequences are closed."""
        live = {(client, number) for number in sequence_ids}
        self.close([key for key in self._held if key[0] == client and key not in live])

    def check_integrity(self) -> None:
        self._drafter.check_integrity()
        assert len({held.local_id for held in self._held.values()}) == len(self._held)
        if self._taps is not None:
            for held in self._held.values():
                absorbed = self._taps.absorbed(held.local_id)
                assert absorbed == held.ids.end, (absorbed, held.ids.end)
