"""What the engine hands back: deltas while it runs, completions when it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from whiflash.core.usage import Usage


class FinishReason(StrEnum):
    """Why a turn ended."""

    STOP = "stop"  # EOS, a stop token or a stop string
    LENGTH = "length"  # max_tokens, or the context limit
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Raw model log-probabilities (natural log, before any processor) of one emitted token."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """What one round added to one choice. `text` never ends inside a character.

    `arm` drafted the tokens; `accepted` of them came from the draft.
    """

    index: int
    token_ids: tuple[int, ...]
    text: str
    arm: str
    accepted: int
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens that one round emitted, for display: arm and accepted count."""

    arm: str
    token_ids: tuple[int, ...]
    text: str
    accepted: int


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished choice. `token_ids` holds what the client was given, a stop token excluded
    from `text` but included here; a stop string is cut from `text`."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    seed: int
    logprobs: tuple[TokenLogprob, ...] = ()
    segments: tuple[Segment, ...] = ()
    error: str | None = None
    matched_stop: str | int | None = field(default=None)


@dataclass(frozen=True, slots=True)
class Generation:
    """All choices of one request, in order of their index."""

    prompt_ids: tuple[int, ...]
    choices: tuple[Completion, ...]

    @property
    def text(self) -> str:
        """Text of the first choice."""
        return self.choices[0].text
