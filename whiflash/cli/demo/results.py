"""What the passes came to, as it travels between processes and into JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whiflash.core.usage import ArmUsage

Texts = Mapping[str, tuple[tuple[int, ...], ...]]
"""Scenario -> token ids of each of its steps."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """Sums over the sessions of one pass. Decode times in milliseconds, prefill not included.

    known_tokens: in the store's index when the pass began; process: id of the one it ran in.
    twin_texts is empty where the pass had no plain twin.
    """

    key: str
    title: str
    known_tokens: int
    num_tokens: int
    num_rounds: int
    arms: Mapping[str, ArmUsage]
    decode_ms: float
    twin_decode_ms: float
    num_errors: int
    texts: Texts
    twin_texts: Texts
    process: int = 0

    @property
    def is_same_text(self) -> bool:
        """Drafting and plain decoding wrote the same tokens, as far as they were compared."""
        return not self.twin_texts or self.texts == self.twin_texts

    @property
    def ratio(self) -> float | None:
        """The twin's decode time over the drafting run's."""
        if not self.twin_texts:
            return None
        return self.twin_decode_ms / max(self.decode_ms, 1e-9)

    @property
    def accepted_length(self) -> float:
        """Tokens per round that did not end a turn, of all arms, plain rounds too."""
        rounds = sum(usage.rounds for usage in self.arms.values())
        return sum(usage.emitted for usage in self.arms.values()) / rounds if rounds else 0.0

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.title,
            "process": self.process,
            "known_tokens": self.known_tokens,
            "tokens": self.num_tokens,
            "rounds": self.num_rounds,
            "accepted_length": round(self.accepted_length, 3),
            "arms": {
                arm: {
                    "rounds": usage.rounds,
                    "emitted": usage.emitted,
                    "accepted": usage.accepted,
                    "accepted_length": round(usage.accepted_length, 3),
                }
                for arm, usage in self.arms.items()
            },
            "decode_ms": round(self.decode_ms, 1),
            "twin_decode_ms": round(self.twin_decode_ms, 1) if self.twin_texts else None,
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "tool_errors": self.num_errors,
            "same_text": self.is_same_text,
        }


def is_same_text(results: Sequence[PassResult]) -> bool:
    """Every pass wrote what its plain twin wrote, and passes with the same fillings wrote the
    same."""
    seen: dict[str, tuple[tuple[int, ...], ...]] = {}
    for result in results:
        if not result.is_same_text:
            return False
        for name, text in result.texts.items():
            if seen.setdefault(name, text) != text:
                return False
    return True
