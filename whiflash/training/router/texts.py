"""Which texts of a work folder a router learns from and is measured on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from whiflash.training.data.generations import Generation, read_generations
from whiflash.training.data.prompts import HELD_OUT

_TUNING_EVERY = 8
HELD_OUT_EVERY = 5
"""One text in so many is a held-out one, while there are any: as they come it would be one in 21,
too few to tell a good router from a bad one."""


def is_tuning(number: int, split: str) -> bool:
    """Whether the text is kept aside to say when to stop: one in eight of those that are learned
    from. Held-out ones say nothing before all is learned, or they would flatter it."""
    return split != HELD_OUT and number % _TUNING_EVERY == 0


def router_texts(work_dir: Path, count: int) -> Iterator[Generation]:
    """At most `count` texts, drawn: the first ones of a folder may be of one kind or temperature.
    Those of a smaller count are the first ones of a larger one's, as far as both splits last.
    Raises ConfigError where there is no text."""
    texts = sorted(read_generations(work_dir), key=_place)
    held_out = [text for text in texts if text.split == HELD_OUT][: -(-count // HELD_OUT_EVERY)]
    learned = iter([text for text in texts if text.split != HELD_OUT])
    for number in range(count):
        place, is_not_theirs = divmod(number, HELD_OUT_EVERY)
        has_one = not is_not_theirs and place < len(held_out)
        text = held_out[place] if has_one else next(learned, None)
        if text is not None:
            yield text


def _place(text: Generation) -> float:
    return random.Random(f"router:{text.number}").random()
