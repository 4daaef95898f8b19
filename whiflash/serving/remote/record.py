"""The in-flight record of a request: all it takes to go on with it at another verifier."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field

from whiflash.core.errors import DeadlineExceededError, WhiFlashError
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import Tokenizer
from whiflash.core.results import Completion, Delta, Segment, TokenLogprob
from whiflash.core.usage import Usage
from whiflash.rpc.verifier_events import ChoiceEnd
from whiflash.serving.backend import ServedModel
from whiflash.serving.choices import Delivered


class DivergedError(WhiFlashError):
    """Two verifiers wrote different texts for one request: a fault of ours, never handed on."""


@dataclass(slots=True)
class _Choice:
    """What the caller has of one choice. skip_ids, skip_characters: what the present verifier
    writes again and the caller has; num_seen: ids that the caller had of it at this point."""

    ids: list[int]
    segments: list[Segment] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    num_characters: int = 0
    is_ended: bool = False
    skip_ids: int = 0
    skip_characters: int = 0
    num_seen: int = 0
    lost: list[Segment] = field(default_factory=list)


class InFlightRecord:
    """Prompt, parameters and seed of one request, and per choice what was delivered.

    One choice goes on behind the delivered ids (`forced_ids`). Several are written anew, the same
    by their seed; what is repeated is checked, and dropped.
    """

    def __init__(self, request: GenerationRequest, seed: int) -> None:
        self.request = request
        self.seed = seed
        self._began_s = time.monotonic()
        self._choices = [_Choice(list(request.forced_ids)) for _ in range(request.params.n)]

    @property
    def is_done(self) -> bool:
        return all(choice.is_ended for choice in self._choices)

    @property
    def has_begun(self) -> bool:
        """The caller has something of it."""
        return any(choice.segments for choice in self._choices)

    @property
    def num_delivered(self) -> int:
        """Ids, of all choices."""
        return sum(len(choice.ids) for choice in self._choices)

    def next_request(self) -> GenerationRequest:
        """For the next verifier. Raises DeadlineExceededError if there is no time left."""
        forced = self._rewind()
        return dataclasses.replace(self.request, forced_ids=forced, deadline_s=self._left_s())

    def lost_end(self, model: ServedModel, tokenizer: Tokenizer) -> Completion | None:
        """The end of a single choice that was delivered as a whole when its verifier was lost:
        no other one can be asked to go on behind it."""
        choice = self._choices[0]
        if len(self._choices) > 1 or not choice.segments or choice.is_ended:
            return None
        delivered = dataclasses.replace(self.request, forced_ids=tuple(choice.ids))
        end = Delivered.of(delivered, model, tokenizer, self.seed).end
        if end is None or len(end.token_ids) < len(choice.ids):
            return None
        self._lose(choice)
        known = ChoiceEnd(
            0, end.finish_reason, Usage(prompt_tokens=len(self.request.prompt_ids)),
            len(choice.ids), matched_stop=end.matched_stop,
        )  # fmt: skip
        return self._end(choice, known)

    def take(self, event: Delta | ChoiceEnd) -> Delta | Completion | None:
        """What the caller gets of it; None if it has all of it. Raises DivergedError."""
        choice = self._choices[event.index]
        if choice.is_ended:
            return None
        if isinstance(event, ChoiceEnd):
            return self._end(choice, event)
        return self._delta(choice, event)

    def _rewind(self) -> tuple[int, ...]:
        """Another verifier begins; the ids that it is to start behind."""
        if len(self._choices) == 1:
            choice = self._choices[0]
            self._lose(choice)
            choice.num_seen = len(choice.ids)
            return tuple(choice.ids)
        for choice in self._choices:
            choice.num_seen = len(self.request.forced_ids)
            choice.skip_ids = len(choice.ids) - choice.num_seen
            choice.skip_characters = choice.num_characters
        return self.request.forced_ids

    @staticmethod
    def _lose(choice: _Choice) -> None:
        """The usage of these segments went with their verifier."""
        choice.lost = list(choice.segments)

    def _left_s(self) -> float | None:
        limit_s = self.request.deadline_s
        if limit_s is None:
            return None
        left_s = limit_s - (time.monotonic() - self._began_s)
        if left_s <= 0:
            raise DeadlineExceededError("the deadline passed before the answer was complete")
        return left_s

    def _delta(self, choice: _Choice, delta: Delta) -> Delta | None:
        new = _behind(choice, delta)
        if not new.token_ids and not new.text and new.finish_reason is None:
            return None
        segment = Segment(new.arm, new.token_ids, new.text, new.accepted)
        choice.ids += new.token_ids
        choice.logprobs += new.logprobs
        choice.num_characters += len(new.text)
        choice.segments.append(segment)
        return new

    def _end(self, choice: _Choice, end: ChoiceEnd) -> Completion:
        if end.num_tokens != len(choice.ids) or choice.skip_ids or choice.skip_characters:
            raise DivergedError(
                f"the verifier ended a choice of {end.num_tokens} tokens, "
                f"{len(choice.ids)} were delivered"
            )
        choice.is_ended = True
        return Completion(
            index=end.index,
            text="".join(segment.text for segment in choice.segments),
            token_ids=tuple(choice.ids),
            finish_reason=end.finish_reason,
            usage=_whole_usage(end.usage, choice, len(self.request.forced_ids)),
            seed=self.seed,
            logprobs=tuple(choice.logprobs),
            segments=tuple(choice.segments),
            error=end.error,
            matched_stop=end.matched_stop,
        )

    def check_integrity(self) -> None:
        for choice in self._choices:
            generated = sum(len(segment.token_ids) for segment in choice.segments)
            assert len(choice.ids) == len(self.request.forced_ids) + generated
            assert choice.num_characters == sum(len(segment.text) for segment in choice.segments)
            assert len(choice.logprobs) in (0, generated)


def _behind(choice: _Choice, delta: Delta) -> Delta:
    """What of `delta` is new to the caller. Raises DivergedError if the rest is not as before."""
    have = choice.ids[choice.num_seen : choice.num_seen + len(delta.token_ids)]
    if list(delta.token_ids[: len(have)]) != have:
        raise DivergedError("the verifier writes another text than the one that was lost")
    choice.num_seen += len(delta.token_ids)
    if not choice.skip_ids and not choice.skip_characters:
        return delta
    ids = min(choice.skip_ids, len(delta.token_ids))
    characters = min(choice.skip_characters, len(delta.text))
    choice.skip_ids -= ids
    choice.skip_characters -= characters
    tokens = delta.token_ids[ids:]
    return dataclasses.replace(
        delta,
        token_ids=tokens,
        text=delta.text[characters:],
        logprobs=delta.logprobs[ids:],
        accepted=min(delta.accepted, len(tokens)),
    )


def _whole_usage(last: Usage, choice: _Choice, num_forced: int) -> Usage:
    """The last verifier's own count, and of those that were lost what their rounds showed: tokens
    emitted and accepted, of which at least as many were drafted."""
    last.completion_tokens = len(choice.ids) - num_forced
    for segment in choice.lost:
        if segment.token_ids:
            last.rounds += 1
            arm = last.arm(segment.arm)
            arm.rounds += 1
            arm.emitted += len(segment.token_ids)
            arm.accepted += segment.accepted
            arm.drafted += segment.accepted
    return last
