"""Usage of all choices of one answer."""

from __future__ import annotations

from typing import Any

from whiflash.core.errors import DeadlineExceededError, NumericsError, RequestCancelledError
from whiflash.core.results import FinishReason
from whiflash.serving.stream import Ended, Started


class Totals:
    """Adds up what choices cost.

    has_arms: whether rounds and arms are told. They are an oracle on the trajectory store
    (design.md 8), so only callers with the scope `debug` get them.
    """

    def __init__(self, *, has_arms: bool) -> None:
        self._has_arms = has_arms
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._completion_tokens = 0
        self._accepted = 0
        self._rejected = 0
        self._seeds: list[int] = []
        self._arms: dict[str, dict[str, int]] = {}

    def start(self, started: Started) -> None:
        """One prompt's call began; its choices share the prompt."""
        self._prompt_tokens += len(started.prompt_ids)
        self._seeds.append(started.seed)

    def end(self, ended: Ended) -> None:
        """One choice is done."""
        usage = ended.completion.usage
        self._completion_tokens += usage.completion_tokens
        self._accepted += ended.accepted_prediction_tokens
        self._rejected += ended.rejected_prediction_tokens
        if ended.index == 0:
            self._cached_tokens += usage.cached_tokens
        for name, arm in usage.arms.items():
            sums = self._arms.setdefault(name, dict.fromkeys(_ARM_FIELDS, 0))
            sums["rounds"] += arm.rounds + arm.ending_rounds
            sums["emitted"] += arm.emitted + arm.ending_emitted
            sums["drafted"] += arm.drafted
            sums["accepted"] += arm.accepted

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object. The prompt counts once, however many choices it has."""
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._completion_tokens,
            "total_tokens": self._prompt_tokens + self._completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self._cached_tokens},
            "completion_tokens_details": {
                "accepted_prediction_tokens": self._accepted,
                "rejected_prediction_tokens": self._rejected,
            },
        }

    def extension(self) -> dict[str, Any]:
        """The field `whiflash` of an answer. A seed has up to 39 digits: text, since JSON
        readers keep 16 of a number."""
        told: dict[str, Any] = {"seed": str(self._seeds[0]) if self._seeds else None}
        if self._has_arms:
            told["drafted"] = sum(arm["drafted"] for arm in self._arms.values())
            told["accepted"] = sum(arm["accepted"] for arm in self._arms.values())
            told["arms"] = self._arms
        return told


_ARM_FIELDS = ("rounds", "emitted", "drafted", "accepted")


def finish_reason(ended: Ended, *, has_calls: bool) -> str:
    """OpenAI's name for the end of a choice. Raises what kept it from ending well."""
    completion = ended.completion
    match completion.finish_reason:
        case FinishReason.STOP:
            return "tool_calls" if has_calls else "stop"
        case FinishReason.LENGTH:
            return "length"
        case FinishReason.DEADLINE:
            raise DeadlineExceededError("the deadline passed before the answer was complete")
        case FinishReason.CANCELLED:
            raise RequestCancelledError("the request was cancelled")
        case FinishReason.ERROR:
            raise NumericsError(completion.error or "the model's numbers broke; try again")
