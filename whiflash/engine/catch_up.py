"""Lazy Catch-up: an idle drafter is not run; when it is chosen it absorbs its backlog in one call.

A backlog is a cursor (WhiFlash paper, section 3): the fused taps of every committed position lie
beside the target's KV, so nothing is kept per drafter and the target is never run again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Sequence as Rows

from whiflash.core.rows import CatchUp
from whiflash.engine.draft_memory import DraftMemory
from whiflash.engine.guard import GuardedTapDrafter
from whiflash.engine.sequence import Sequence


class CatchUps:
    """Brings drafters that read taps up to the roots of their rows.

    window_tokens: a drafter that lags further starts anew with the last so many positions, and so
        does one whose window was cut to less than half of it: a hint, the text does not depend on
        it.
    memory: what they may hold; a row without room in it is not caught up.
    spent: by arm, tokens absorbed in this step and the milliseconds that took.
    """

    def __init__(
        self,
        drafters: Mapping[str, GuardedTapDrafter],
        memory: DraftMemory,
        window_tokens: int,
    ) -> None:
        self._drafters = drafters
        self._memory = memory
        self._window_tokens = window_tokens
        self.spent: dict[str, tuple[int, float]] = {}
        self.num_window_starts = 0

    def begin_step(self) -> None:
        self.spent = {}

    def backlogs(self, sequence: Sequence, arms: Rows[str]) -> dict[str, int]:
        """Positions that each of `arms` would have to absorb now, by arm."""
        return {
            arm: _length(sequence) - self._start(arm, sequence)[0]
            for arm in arms
            if arm in self._drafters
        }

    def _start(self, arm: str, sequence: Sequence) -> tuple[int, bool]:
        """First position to absorb; whether it is a window's."""
        root, absorbed = _length(sequence), self._drafters[arm].absorbed(sequence.draft_id)
        if absorbed == root:
            return root, False
        begun = self._memory.first_position(arm, sequence.draft_id)
        kept = self._taps_from(arm, sequence)
        is_cut_short = begun > kept and root - begun < self._window_tokens // 2
        if root - absorbed > self._window_tokens or is_cut_short or absorbed < kept:
            return max(root - self._window_tokens, kept), True
        return absorbed, False

    def _taps_from(self, arm: str, sequence: Sequence) -> int:
        """Where its taps begin: behind the prompt for a drafter that came while it ran."""
        assert sequence.cache is not None
        return sequence.cache.taps_from(self._drafters[arm].weight_hash)

    def _can_go_on(self, arm: str, sequence: Sequence) -> bool:
        """There is something to absorb."""
        return self._start(arm, sequence)[0] < _length(sequence)

    def _is_ready(self, arm: str, sequence: Sequence) -> bool:
        return self._drafters[arm].absorbed(sequence.draft_id) == _length(sequence)

    def run(self, arm: str, sequences: Rows[Sequence]) -> list[bool]:
        """Absorbs all backlogs of one arm in one batched call; whether each sequence is up to its
        root now. An arm that reads no taps never lags."""
        drafter = self._drafters.get(arm)
        if drafter is None:
            return [True] * len(sequences)
        behind = [self._row(arm, s) for s in sequences if self._can_go_on(arm, s)]
        rows = self._memory.admit(arm, [s.draft_id for s in sequences], behind)
        if rows:
            started = time.perf_counter()
            self.num_window_starts += sum(row.is_window_start for row in rows)
            drafter.absorb(rows)
            tokens = sum(len(row.token_ids) - 1 for row in rows)
            self.spent[arm] = tokens, 1e3 * (time.perf_counter() - started)
        return [self._is_ready(arm, sequence) for sequence in sequences]

    def _row(self, arm: str, sequence: Sequence) -> CatchUp:
        """Positions [absorbed, S), or the window's."""
        assert sequence.cache is not None
        root = sequence.cache.length
        start, is_window_start = self._start(arm, sequence)
        return CatchUp(
            sequence_id=sequence.draft_id,
            start=start,
            token_ids=sequence.ids[start : root + 1],
            fused=sequence.cache.fused_taps(self._drafters[arm].weight_hash, start, root),
            is_window_start=is_window_start,
        )


def _length(sequence: Sequence) -> int:
    """Positions that are committed."""
    assert sequence.cache is not None
    return sequence.cache.length
