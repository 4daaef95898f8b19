"""What the loop has done so far: the plan, metrics and the exactness tests read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field, fields
from typing import Any

from whiflash.core.rows import NONE, StepCost
from whiflash.engine.drafting import RowDraft
from whiflash.engine.prefill import PrefillChunk


@dataclass(slots=True)
class Counters:
    """Totals since start.

    rejected_at: by depth d, rounds in which a draft reached depth d and was rejected there.
    mixed_steps: forwards with an undrafted row, a row of one node and a row of more at once.
    mixed_prefill_steps: forwards with prefill rows beside drafted rows.
    mixed_arm_steps: forwards with drafts of several arms.
    inherited_drafts: turns that went on with what drafters held of the turn before.
    switched: by "from>to", rounds whose arm is another than the sequence's last one's.
    preemptions: times that a running turn had to give its memory up.
    parked, parked_hits: turns whose KV was kept for a tool's result; next turns that found it.
    reuse_ended: by reason (engine.reuse), sequences at their admission.
    shadows, shadows_denied: shadow proposals; those that found no room or no taps.
    regret_roots, regret: roots at which several arms are known to have proposed; the sum of the
        shares of the best choice's goodput that were missed there (routing.regret).
    constrained_rounds, mask_ms: rounds of answers with a grammar; time spent on their masks.
    """

    steps: int = 0
    rounds: int = 0
    plain_steps: int = 0
    prefill_tokens: int = 0
    verified_rows: int = 0
    emitted_tokens: int = 0
    tree_rounds: int = 0
    mixed_steps: int = 0
    mixed_prefill_steps: int = 0
    mixed_arm_steps: int = 0
    cancelled_mid_draft: int = 0
    inherited_drafts: int = 0
    preemptions: int = 0
    parked: int = 0
    parked_hits: int = 0
    shadows: int = 0
    shadows_denied: int = 0
    regret_roots: int = 0
    regret: float = 0.0
    constrained_rounds: int = 0
    mask_ms: float = 0.0
    rejected_at: Counter[int] = field(default_factory=Counter)
    arm_rounds: Counter[str] = field(default_factory=Counter)
    switched: Counter[str] = field(default_factory=Counter)
    reuse_ended: Counter[str] = field(default_factory=Counter)

    def describe(self) -> dict[str, Any]:
        """JSON-able. (`dataclasses.asdict` breaks Counters: it rebuilds them from pairs.)"""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: {str(key): n for key, n in sorted(value.items())}
            if isinstance(value, Counter)
            else value
            for name, value in values.items()
        }

    def note(self, rows: Rows[RowDraft], chunks: Rows[PrefillChunk], cost: StepCost) -> None:
        self.steps += 1
        self.rounds += len(rows)
        self.plain_steps += cost.was_plain and bool(rows)
        self.verified_rows += cost.tokens
        self.emitted_tokens += cost.emitted
        sizes = {min(len(row.tree), 2) for row in rows}
        self.mixed_steps += sizes == {0, 1, 2}
        self.mixed_prefill_steps += bool(chunks) and bool(sizes - {0})
        self.mixed_arm_steps += len({row.arm for row in rows} - {NONE}) > 1
        for row in rows:
            self._note_arm(row)
            self.constrained_rounds += row.sequence.grammar is not None
            self.tree_rounds += not row.tree.is_chain

    def _note_arm(self, row: RowDraft) -> None:
        self.arm_rounds[row.arm] += 1
        last = row.sequence.last_arm
        if last is not None and last != row.arm:
            self.switched[f"{last}>{row.arm}"] += 1
        row.sequence.last_arm = row.arm

    def note_rejection(self, draft: RowDraft, accepted: int) -> None:
        """The verdict of one drafted row: where its path left the draft, if it did."""
        if accepted < draft.tree.max_depth:
            self.rejected_at[accepted + 1] += 1
