"""The drafters that an engine runs, guarded, and what they hold of whom."""

from __future__ import annotations

from collections.abc import Mapping

from whiflash.core.protocols import Drafter
from whiflash.core.rows import NONE
from whiflash.engine.draft_memory import DraftMemory
from whiflash.engine.guard import GuardedTapDrafter, guarded
from whiflash.engine.sequence import Sequence


class Arms:
    """Life of the drafters' states. What reads taps outlives a turn: it stays with the turn's KV
    and goes on with the next turn that takes that over; all else ends with the turn."""

    def __init__(self, drafters: Mapping[str, Drafter], draft_bytes: int) -> None:
        """`draft_bytes`: most memory of what drafters that read taps hold."""
        self.drafters = {name: guarded(drafter) for name, drafter in drafters.items()}
        self.tap_drafters = {
            name: drafter
            for name, drafter in self.drafters.items()
            if isinstance(drafter, GuardedTapDrafter)
        }
        self.memory = DraftMemory(self.tap_drafters, draft_bytes)

    @property
    def num_failures(self) -> int:
        """Calls in which a drafter raised or handed over nonsense."""
        return sum(drafter.num_failures for drafter in self.drafters.values())

    def key(self, arm: str, sequence: Sequence) -> int:
        """What the arm's drafter knows the sequence as."""
        return sequence.draft_id if arm in self.tap_drafters else sequence.id

    def may_draft(self, sequence: Sequence) -> bool:
        """Whether there is any choice to make for it."""
        return bool(self.drafters) and sequence.request.drafter != NONE

    def named(self, sequence: Sequence) -> tuple[str, ...]:
        """The arm that the request pinned, or all."""
        pinned = sequence.request.drafter
        return tuple(self.drafters) if pinned is None else (pinned,)

    def eligible(self, sequence: Sequence) -> tuple[str, ...]:
        """A row that outgrew a drafter's context falls to the other arms, and so does every row
        while the drafter cannot be reached."""
        return tuple(name for name in self.named(sequence) if self._fits(name, sequence))

    def _fits(self, name: str, sequence: Sequence) -> bool:
        if not self.drafters[name].is_up:
            return False
        drafter = self.tap_drafters.get(name)
        return drafter is None or sequence.num_ids < drafter.context_limit

    def has_begun(self, name: str, sequence: Sequence) -> bool:
        """Whether the arm already holds something of an earlier turn that goes on here."""
        drafter = self.tap_drafters.get(name)
        return drafter is not None and drafter.absorbed(sequence.draft_id) > 0

    def adopt(self, sequence: Sequence) -> bool:
        """At admission: what is held of an earlier turn is cut to the prefix taken over. Whether
        there may be any."""
        is_new = sequence.usage.preemptions == 0  # what is held of a preempted one still holds
        if not is_new or sequence.draft_id == sequence.id or sequence.cache is None:
            return False
        for drafter in self.tap_drafters.values():
            drafter.crop(sequence.draft_id, sequence.cache.length)
        return bool(self.tap_drafters)

    def finish(self, sequence: Sequence) -> None:
        """The turn ended. What reads taps is dropped with the KV (`drop`), or now if there is
        none."""
        for name, drafter in self.drafters.items():
            if name not in self.tap_drafters:
                drafter.close(sequence.id)
        if sequence.cache is None:
            self.drop(sequence.draft_id)

    def drop(self, draft_id: int) -> None:
        """The KV that it stayed with is gone."""
        for drafter in self.tap_drafters.values():
            drafter.close(draft_id)
        self.memory.release(draft_id)

    def check_integrity(self) -> None:
        for drafter in self.drafters.values():
            drafter.check_integrity()
        self.memory.check_integrity()
