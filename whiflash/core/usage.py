"""What a turn cost and brought. Identity: completion = sum over rounds of emitted - discarded."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ArmUsage:
    """Per arm. rounds counts rounds that drafted (or, for `none`, plain rounds) and did not end
    the turn; ending rounds are counted apart, as design.md 2 (accepted length) demands.

    drafted_at / accepted_at: index d-1 counts *chain or deepest-path* positions of depth d that
    were proposed / accepted, over non-ending rounds.
    """

    rounds: int = 0
    emitted: int = 0
    drafted: int = 0
    accepted: int = 0
    ending_rounds: int = 0
    ending_emitted: int = 0
    discarded: int = 0
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)

    @property
    def accepted_length(self) -> float:
        """Tokens emitted per non-ending round, the target's own included; 0 without rounds."""
        return self.emitted / self.rounds if self.rounds else 0.0


@dataclass(slots=True)
class Usage:
    """Of one choice. Times in milliseconds of wall clock, shared forwards counted in full.

    preemptions: times that it had to wait for memory after it had begun to run.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    rounds: int = 0
    preemptions: int = 0
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    arms: dict[str, ArmUsage] = field(default_factory=dict)

    def arm(self, name: str) -> ArmUsage:
        return self.arms.setdefault(name, ArmUsage())
