"""What fills a template: seeded choices from pools that are split into training and held-out."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]
# Every sixth value of each pool appears in held-out prompts only.
_HELD_OUT_EVERY = 6


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt as chat messages. `start` is the beginning of the answer, given to the model (a
    small one then does the work instead of talking about it)."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    start: str = ""

    @classmethod
    def ask(cls, text: str, start: str = "", system: str = "") -> Task:
        """One message of a user."""
        head: tuple[Message, ...] = ({"role": "system", "content": system},) if system else ()
        return cls((*head, {"role": "user", "content": text}), start=start)


class Filler:
    """Choices for one prompt. Equal seeds choose alike.

    `picked` lists the values that were taken from pools: a held-out prompt uses none that a
    training prompt may use, and the other way round.
    """

    def __init__(self, seed: str, *, is_held_out: bool) -> None:
        self._random = random.Random(seed)
        self._is_held_out = is_held_out
        self.picked: list[str] = []

    def pick(self, pool: Sequence[str]) -> str:
        """A value from this split's part of the pool."""
        return self.some(pool, 1)[0]

    def some(self, pool: Sequence[str], count: int) -> list[str]:
        """Several different values from this split's part of the pool."""
        chosen = self._random.sample(part_of(pool, is_held_out=self._is_held_out), count)
        self.picked += chosen
        return chosen

    def one_of(self, *phrases: str) -> str:
        """A wording; both splits use all of them."""
        return self._random.choice(phrases)

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self._random.randint(low, high)

    def chance(self, share: float) -> bool:
        """True for that share of the prompts."""
        return self._random.random() < share


Template = Callable[[Filler], Task]


def part_of(pool: Sequence[str], *, is_held_out: bool) -> list[str]:
    """The values that one split may use."""
    last = _HELD_OUT_EVERY - 1
    return [v for i, v in enumerate(pool) if (i % _HELD_OUT_EVERY == last) is is_held_out]
