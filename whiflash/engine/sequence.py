"""One choice of one request, from the waiting queue to its last token."""

from __future__ import annotations

import time
from enum import Enum

import numpy as np
import numpy.typing as npt

from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import SequenceCache
from whiflash.core.results import FinishReason, Segment, TokenLogprob
from whiflash.core.signals import Signals
from whiflash.core.usage import Usage
from whiflash.engine.grammar import SequenceGrammar
from whiflash.engine.ticket import Ticket
from whiflash.routing.recent import RecentRates
from whiflash.sampling.sampler import SequenceSampler
from whiflash.sampling.stops import StopChecker


class State(Enum):
    """Where a sequence stands; `choose`, `draft` and `verify` happen inside one step. A preempted
    one waits without KV; what it has said stays said."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class Sequence:
    """State of a choice. Invariant while decoding: cache.length == len(ids) - 1, the root being
    the last id. draft_id: what drafters know it as; an earlier turn's where its KV went on.
    is_awake: its next round is to be looked at, and has signals."""

    def __init__(
        self,
        sequence_id: int,
        request: GenerationRequest,
        index: int,
        ticket: Ticket,
        sampler: SequenceSampler,
        stops: StopChecker,
        grammar: SequenceGrammar | None = None,
    ) -> None:
        self.id = sequence_id
        self.draft_id = sequence_id
        self.request = request
        self.index = index
        self.ticket = ticket
        self.sampler = sampler
        self.stops = stops
        self.grammar = grammar
        self.state = State.WAITING
        self.cache: SequenceCache | None = None
        self.reserved_bytes = 0
        self.signals: Signals | None = None
        self.is_awake = False
        self.is_cancelled = False
        self.is_draft_open = False
        self.last_arm: str | None = None
        self.recent = RecentRates()
        self.usage = Usage(prompt_tokens=len(request.prompt_ids))
        self.logprobs: list[TokenLogprob] = []
        self.segments: list[Segment] = []
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.matched_stop: str | int | None = None
        self.submitted_s = time.perf_counter()
        self.admitted_s = 0.0
        self.first_token_s = 0.0
        self.num_prompt = len(request.prompt_ids)
        prefix = (*request.prompt_ids, *request.forced_ids)
        self._num_ids = len(prefix)
        self._ids = np.empty(max(2 * len(prefix), 64), np.int32)
        self._ids[: len(prefix)] = prefix

    @property
    def ids(self) -> npt.NDArray[np.int32]:
        """int32 [prompt + generated], the root last. A view that stays valid as ids are added."""
        return self._ids[: self._num_ids]

    @property
    def generated(self) -> npt.NDArray[np.int32]:
        return self._ids[self.num_prompt : self._num_ids]

    @property
    def num_generated(self) -> int:
        return self._num_ids - self.num_prompt

    @property
    def num_ids(self) -> int:
        return self._num_ids

    @property
    def is_finished(self) -> bool:
        return self.state is State.FINISHED

    @property
    def is_running(self) -> bool:
        return self.state in (State.PREFILL, State.DECODE)

    @property
    def has_begun(self) -> bool:
        """Whether a token of the answer was emitted here; `forced_ids` were not."""
        return self.num_generated > len(self.request.forced_ids)

    @property
    def pending_prefill(self) -> npt.NDArray[np.int32]:
        """Ids whose KV does not exist yet and must before a round: the prompt's, and after a
        preemption the answer's as well, but for the root, which the round itself runs."""
        assert self.cache is not None
        return self._ids[self.cache.length : self._num_ids - self.has_begun]

    @property
    def ended_in_call(self) -> bool:
        """The turn is over and its answer calls a tool, so that the next turn is near."""
        marker = self.request.call_marker
        if not marker or self.finish_reason is not FinishReason.STOP:
            return False
        return marker in "".join(segment.text for segment in self.segments)

    def inherit_drafts(self, draft_id: int) -> None:
        """The turn whose KV this one took over is known to drafters under that id."""
        self.draft_id = draft_id

    def append(self, tokens: tuple[int, ...]) -> None:
        needed = self._num_ids + len(tokens)
        if needed > len(self._ids):
            grown = np.empty(max(2 * len(self._ids), needed), np.int32)
            grown[: self._num_ids] = self.ids
            self._ids = grown  # the old array lives on in the views that others hold
        self._ids[self._num_ids : needed] = tokens
        self._num_ids = needed

    def end_reason(self, now_s: float) -> FinishReason | None:
        """Whether it must end before anything more is spent on it."""
        if self.ticket.is_cancelled:
            return FinishReason.CANCELLED
        deadline = self.request.deadline_s
        if deadline is not None and now_s - self.submitted_s > deadline:
            return FinishReason.DEADLINE
        return None

    def check_integrity(self) -> None:
        if self.state is State.DECODE:
            assert self.cache is not None
            assert self.cache.length == self.num_ids - 1, (self.cache.length, self.num_ids)
        if self.grammar is not None and self.state is not State.FINISHED:
            self.grammar.check_integrity(self.generated.tolist())
        if self.state in (State.WAITING, State.PREEMPTED, State.FINISHED):
            assert self.cache is None
            assert self.reserved_bytes == 0
        if self.cache is not None:
            self.cache.check_integrity()
            held, allowed = self.cache.num_bytes, self.reserved_bytes
            assert held <= allowed, f"a cache of {held} bytes outgrew its {allowed}"
