"""What the planned requests must say, for the comparison and for the oracles."""

from __future__ import annotations

from collections.abc import Sequence

from whiflash.core.protocols import Target, Tokenizer
from whiflash.testing.plain import PlainAnswer, plain_answer
from whiflash.testing.requests import Planned


class Truth:
    """The plain answers of requests, in their order: one by choice."""

    def __init__(self, target: Target, tokenizer: Tokenizer) -> None:
        self._target, self._tokenizer = target, tokenizer
        self.answers: list[list[PlainAnswer]] = []
        self._texts: list[list[int]] = []

    def extend(self, planned: Sequence[Planned]) -> None:
        """More requests, behind those before."""
        for plan in planned:
            answers = [
                plain_answer(
                    self._target, self._tokenizer, plan.request, index, plan.seed, plan.grammar
                )
                for index in range(plan.request.params.n)
            ]
            self.answers.append(answers)
            self._texts += [[*plan.request.prompt_ids, *answer.token_ids] for answer in answers]

    def resume(self, number: int, plan: Planned) -> None:
        """Request `number` is asked as `plan` now. Raises AssertionError where that makes the
        plain loop contradict what it said before."""
        (whole,) = self.answers[number]
        rest = plain_answer(self._target, self._tokenizer, plan.request, 0, plan.seed, plan.grammar)
        assert rest.token_ids == whole.token_ids, (plan, rest, whole)
        assert rest.finish_reason is whole.finish_reason, (plan, rest, whole)
        self.answers[number] = [rest]

    def continuation(self, context: Sequence[int], count: int) -> Sequence[int]:
        """The next ids of a text that begins with `context`. Where two requests share it, it may
        be the other's, which is a wrong draft and as good a test."""
        known = list(context)
        for text in self._texts:
            if text[: len(known)] == known:
                return text[len(known) : len(known) + count]
        return []
