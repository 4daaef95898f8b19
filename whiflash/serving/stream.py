"""What a running call hands to a front end, in the order it happens."""

from __future__ import annotations

from dataclasses import dataclass

from whiflash.chat.events import ParseEvent
from whiflash.chat.messages import ParsedMessage
from whiflash.core.results import Completion, TokenLogprob


@dataclass(frozen=True, slots=True)
class Queued:
    """Still waiting for a slot, sent every few seconds so that clients do not give up."""

    waited_s: float


@dataclass(frozen=True, slots=True)
class Started:
    """The call was accepted: what it takes to resume it. The seed is the caller's, or the one
    drawn for it."""

    prompt_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What one round added to one choice. `events` say what the text means (content, reasoning,
    calls); they may lag behind `text`, which holds what the model wrote, character by character.
    """

    index: int
    token_ids: tuple[int, ...]
    text: str
    events: tuple[ParseEvent, ...]
    arm: str
    accepted: int
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """One choice is done. `events` are those that only the end made certain; `message` is None
    where the prompt was not a chat."""

    index: int
    completion: Completion
    events: tuple[ParseEvent, ...]
    message: ParsedMessage | None
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CallResult:
    """A whole call: what `Started` said, and how each choice ended, in order of their index."""

    prompt_ids: tuple[int, ...]
    seed: int
    choices: tuple[Ended, ...]


StreamEvent = Queued | Started | Piece | Ended
