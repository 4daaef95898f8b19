"""Real forwards over recorded agent runs: the engine writes what was recorded, whatever the model
would have said, and drafts are accepted against that (`whiflash bench --forced`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch

from whiflash.bench.recordings import Ids, RecordedRun
from whiflash.bench.round_times import RoundTimes
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.usage import Usage
from whiflash.engine.build import EngineParts
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket
from whiflash.sampling.sampler import Mask, SequenceSampler, greedy_tokens
from whiflash.trajectories.record import TrajectoryRecord

FLUSH_S: Final = 60.0


class ForcedSampler(SequenceSampler):
    """In the place of a greedy one: the recorded id, however likely. The argmax is taken all the
    same, as a round would, and counted where it is the recorded id."""

    def __init__(self, sampler: SequenceSampler, text: Ids) -> None:
        vars(self).update(vars(sampler))
        self._text = text
        self.num_asked = 0
        self.num_agreed = 0

    @property
    def is_plain_greedy(self) -> bool:
        return False

    def sample(
        self,
        logits_row: torch.Tensor,
        generated: Sequence[int],
        allowed: Mask | None = None,  # noqa: ARG002  (recorded text has no grammar)
    ) -> int:
        place = len(generated)
        best = greedy_tokens(logits_row[None])[0]
        if place >= len(self._text):
            return best  # behind the last token, which the turn's length cuts off
        self.num_asked += 1
        self.num_agreed += best == int(self._text[place])
        return int(self._text[place])


@dataclass(frozen=True, slots=True)
class ForcedTurn:
    """int32 ids: all that stands before the answer, and the answer."""

    prompt: Ids
    answer: Ids


@dataclass(frozen=True, slots=True)
class Conversation:
    """A run cut at the last assistant turn that fits the context; num_dropped: turns behind it."""

    run_id: str
    turns: tuple[ForcedTurn, ...]
    num_dropped: int

    @property
    def num_tokens(self) -> int:
        return sum(len(turn.answer) for turn in self.turns)

    @property
    def answers(self) -> list[int]:
        """Of all turns, one after the other."""
        return [int(token) for turn in self.turns for token in turn.answer]


def conversation(run: RecordedRun, context_limit: int) -> Conversation:
    """Turns in order, up to the first that does not fit."""
    text = np.zeros(0, np.int32)
    turns: list[ForcedTurn] = []
    for turn in run.turns:
        text = turn.new_context if turn.is_fork else np.concatenate([text, turn.new_context])
        if len(text) + len(turn.target) > context_limit:
            break
        turns.append(ForcedTurn(text, turn.target))
        text = np.concatenate([text, turn.target])
    return Conversation(run.run_id, tuple(turns), len(run.turns) - len(turns))


@dataclass(slots=True)
class ForcedResult:
    """One conversation. usages, sequences (their numbers): by turn; num_agreed: of num_asked
    recorded ids, those that were the target's argmax."""

    usages: list[Usage]
    num_asked: int = 0
    num_agreed: int = 0
    sequences: list[int] = field(default_factory=list)
    times: RoundTimes = field(default_factory=RoundTimes)

    @property
    def decode_ms(self) -> float:
        """Behind each turn's first token, which prefill brings."""
        return sum(usage.decode_ms for usage in self.usages)

    @property
    def decoded_tokens(self) -> int:
        return sum(usage.completion_tokens - 1 for usage in self.usages)


class ForcedEngine:
    """A core, stepped on this thread; one conversation at a time."""

    def __init__(self, parts: EngineParts, core: EngineCore) -> None:
        self._parts = parts
        self._core = core

    def teach(self, namespace: str, runs: Iterable[RecordedRun]) -> None:
        """Puts earlier runs into the store."""
        store = self._parts.store
        store.indexes.live(namespace)
        for run in runs:
            for number, turn in enumerate(run.turns):
                store.log.append(
                    TrajectoryRecord(
                        namespace, run.run_id, turn.target, number,
                        tokenizer=store.scopes.tokenizer,
                    )
                )  # fmt: skip
        if not store.indexes.flush(FLUSH_S):
            raise RuntimeError("the index did not keep up")

    def follow(
        self, told: Conversation, namespace: str, drafter: str | None = None
    ) -> ForcedResult:
        """All turns; nothing of them enters the store. drafter: pinned arm, None lets the policy
        choose."""
        result = ForcedResult([])
        for turn in told.turns:
            params = SamplingParams(max_tokens=len(turn.answer), ignore_eos=True)
            request = GenerationRequest(
                tuple(turn.prompt.tolist()), params, namespace, told.run_id,
                drafter=drafter, store=False,
            )  # fmt: skip
            self._answer(request, turn.answer, result)
        return result

    def _answer(self, request: GenerationRequest, answer: Ids, result: ForcedResult) -> None:
        ticket = Ticket(request, 0)
        (sequence,) = self._core.submit(ticket)
        sampler = ForcedSampler(sequence.sampler, answer)
        sequence.sampler = sampler
        result.sequences.append(sequence.id)
        while self._core.has_work:
            result.times.step(self._core)
        completion = ticket.result().choices[0]
        if completion.token_ids != tuple(answer.tolist()):
            raise RuntimeError("the engine did not write the recorded text")
        result.usages.append(completion.usage)
        result.num_asked += sampler.num_asked
        result.num_agreed += sampler.num_agreed
