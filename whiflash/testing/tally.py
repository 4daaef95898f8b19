"""What random scenarios have covered so far, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

from whiflash.core.results import FinishReason
from whiflash.core.rows import NONE
from whiflash.engine.core import EngineCore
from whiflash.engine.reuse import REASONS
from whiflash.testing.cast import RETRIEVAL, SCRIPTED
from whiflash.testing.plain import PlainAnswer
from whiflash.testing.policies import NAMES
from whiflash.testing.requests import Planned
from whiflash.testing.toy_drafters import AUTOREGRESSIVE, BLOCK, NEURAL

_ALL_SWITCHES = [
    f"{a}>{b}" for a, b in permutations((NONE, RETRIEVAL, "autoregressive", "block"), 2)
] + ["block>block", "autoregressive>autoregressive"]


def _kinds_of_switches(switched: Counter[str]) -> Counter[str]:
    """Switches between paradigms; scripted drafters are left out."""
    found: Counter[str] = Counter()
    for way, count in switched.items():
        kinds = [_paradigm(arm) for arm in way.split(">")]
        if None not in kinds:
            found[f"{kinds[0]}>{kinds[1]}"] += count
    return found


def _paradigm(arm: str) -> str | None:
    if arm in (NONE, RETRIEVAL):
        return arm
    if arm in BLOCK:
        return "block"
    return "autoregressive" if arm in AUTOREGRESSIVE else None


@dataclass(slots=True)
class Tally:
    """What the scenarios so far have covered."""

    scenarios: int = 0
    choices: int = 0
    rounds: int = 0
    covered: Counter[str] = field(default_factory=Counter)
    rejected_at: Counter[int] = field(default_factory=Counter)
    arm_rounds: Counter[str] = field(default_factory=Counter)
    switched: Counter[str] = field(default_factory=Counter)
    policy_rounds: Counter[str] = field(default_factory=Counter)

    def add(self, core: EngineCore, policy: str) -> None:
        """What a core that has finished its requests has done, under a policy of that name."""
        counters = core.counters
        self.scenarios += 1
        self.policy_rounds[policy] += counters.rounds
        self.rounds += counters.rounds
        self.rejected_at.update(counters.rejected_at)
        self.arm_rounds.update(counters.arm_rounds)
        self.switched.update(_kinds_of_switches(counters.switched))
        self.covered.update(
            prefix_hits=core.admission.num_prefix_hits,
            trees=counters.tree_rounds,
            mixed_drafts=counters.mixed_steps,
            mixed_prefill=counters.mixed_prefill_steps,
            cancelled_mid_draft=counters.cancelled_mid_draft,
            invalid_nodes=core.drafting.num_invalid_nodes,
            drafter_failures=core.arms.num_failures,
            tap_drafter_failures=sum(d.num_failures for d in core.arms.tap_drafters.values()),
            mixed_arms=counters.mixed_arm_steps,
            window_starts=core.drafting.catch_ups.num_window_starts,
            inherited_drafts=counters.inherited_drafts,
            constrained_rounds=counters.constrained_rounds,
            masked_nodes=core.drafting.num_masked_nodes,
            preemptions=counters.preemptions,
            parked=counters.parked,
            parked_hits=counters.parked_hits,
            dropped_draft_states=core.arms.memory.num_dropped,
            denied_draft_states=core.arms.memory.num_denied,
            shadows=counters.shadows,
            denied_shadows=counters.shadows_denied,
        )
        self.covered.update({f"reuse ended: {why}": counters.reuse_ended[why] for why in REASONS})

    def add_request(self, plan: Planned, answers: Sequence[PlainAnswer], num_valid: int) -> None:
        """What was asked and how it ended; `num_valid`: choices that were read against their form
        and found to have it."""
        reasons = [answer.finish_reason for answer in answers]
        is_held = plan.grammar is not None
        self.choices += len(answers)
        self.covered.update(
            resumed=bool(plan.request.forced_ids),
            resumed_in_grammar=is_held and bool(plan.request.forced_ids),
            whole_in_grammar=is_held * reasons.count(FinishReason.STOP),
            cut_in_grammar=is_held * reasons.count(FinishReason.LENGTH),
            nothing_allowed=reasons.count(FinishReason.ERROR),
            valid_in_grammar=num_valid,
        )

    def missing(self, max_depth: int) -> list[str]:
        """What never happened so far."""
        missing = [name for name, count in self.covered.items() if count == 0]
        missing += [f"rejection at depth {d}" for d in range(1, max_depth + 1)
                    if self.rejected_at[d] == 0]  # fmt: skip
        missing += [f"rounds of {arm}" for arm in (NONE, RETRIEVAL, *SCRIPTED, *NEURAL)
                    if self.arm_rounds[arm] == 0]  # fmt: skip
        missing += [f"policy {name}" for name in NAMES if self.policy_rounds[name] == 0]
        missing += [f"switch {way}" for way in _ALL_SWITCHES if self.switched[way] == 0]
        return missing

    def require_coverage(self, max_depth: int) -> None:
        """Raises AssertionError naming what never happened."""
        missing = self.missing(max_depth)
        assert not missing, f"the scenarios never covered: {', '.join(missing)}"

    def lines(self) -> list[str]:
        """For a person."""
        return [
            f"{self.scenarios} scenarios, {self.choices} choices, {self.rounds} sequence-rounds",
            ", ".join(f"{name} {count}" for name, count in sorted(self.covered.items())),
            "rejected at depth: "
            + ", ".join(f"{depth}: {count}" for depth, count in sorted(self.rejected_at.items())),
            "switched: " + ", ".join(f"{way} {n}" for way, n in sorted(self.switched.items())),
            "rounds: " + ", ".join(f"{arm} {n}" for arm, n in sorted(self.arm_rounds.items())),
            "under: " + ", ".join(f"{name} {n}" for name, n in sorted(self.policy_rounds.items())),
        ]
