"""Agents' conversations with an engine: each turn's prompt holds the turns before it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.results import Completion
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket

MAX_STEPS = 20_000
Ids = tuple[int, ...]


@dataclass(slots=True)
class Conversation:
    """`head` begins the first prompt; behind each answer comes a tool's result, drawn by `seed`.
    history: how an answer is written in the next prompt, as templates may cut it. done: the turns
    so far."""

    head: Ids
    seed: int
    num_turns: int
    params: SamplingParams
    history: Callable[[Ids], Ids] = lambda answer: answer
    vocab_size: int = 64
    call_marker: str = ""
    namespace: str = "local"
    done: list[Completion] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return len(self.done) == self.num_turns

    def next_request(self) -> GenerationRequest:
        rng = random.Random(self.seed)
        prompt = self.head
        for turn in self.done:
            result = tuple(rng.randrange(3, self.vocab_size) for _ in range(rng.randrange(4, 12)))
            prompt = (*prompt, *self.history(turn.token_ids), *result)
        params = dataclasses.replace(self.params, seed=self.seed)
        return GenerationRequest(
            prompt, params, namespace=self.namespace, call_marker=self.call_marker
        )

    def go_on(self, core: EngineCore) -> None:
        """Takes in the turn that is done and asks for the next one."""
        if len(self.tickets) > len(self.done):
            if not self.tickets[-1].is_done:
                return
            self.done.append(self.tickets[-1].result().choices[0])
        if not self.is_over:
            self.tickets.append(Ticket(self.next_request(), self.seed))
            core.submit(self.tickets[-1])


def converse(core: EngineCore, conversations: Sequence[Conversation]) -> None:
    """All at once, until all are over; integrity is checked after each step."""
    for _ in range(MAX_STEPS):
        for conversation in conversations:
            if not conversation.is_over:
                conversation.go_on(core)
        if all(conversation.is_over for conversation in conversations):
            return
        core.step()
        core.check_integrity()
    raise AssertionError(f"the conversations were not over within {MAX_STEPS} steps")
