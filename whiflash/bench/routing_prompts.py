"""Live text of the suite `routing`: five categories, greedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from whiflash.bench.prompts import BenchPrompt, all_prompts

CATEGORIES: Final = ("chat", "maths", "code", "JSON and edits", "tool loop")
_MATHS: Final = (
    "A shop sells pens at 3 euros and notebooks at 5 euros. Lena buys 4 pens and 6 notebooks and "
    "pays with a note of 50. How much does she get back? Explain each step.",
    "Solve 3x + 7 = 25 for x, then solve 2y - 9 = 15 for y. Show every step of both.",
    "Write the multiplication table of 7 from 7 x 1 to 7 x 12, one line each.",
)
_CODE: Final = (
    "Write a Python function that returns the running total of a list of numbers, then one that "
    "returns the running maximum, then one that returns the running minimum.",
    "Write a Python class Stack with push, pop, peek and is_empty, each with a docstring.",
    "Write a SQL table for books with title, author, year and price, and five INSERT statements.",
)


def routing_prompts(per_category: int, max_tokens: int) -> Mapping[str, tuple[BenchPrompt, ...]]:
    """The first prompts of each category, answers cut to `max_tokens`."""
    own = tuple(all_prompts())
    kinds = {kind: [prompt for prompt in own if prompt.kind == kind]
             for kind in ("chat", "edit", "JSON lines", "tool loop")}  # fmt: skip
    pairs = zip(kinds["JSON lines"], kinds["edit"], strict=False)
    texts = (
        kinds["chat"],
        [_asked("maths", text) for text in _MATHS],
        [_asked("code", text) for text in _CODE],
        [prompt for pair in pairs for prompt in pair],
        kinds["tool loop"],
    )
    return {
        category: tuple(
            replace(prompt, max_tokens=min(prompt.max_tokens, max_tokens))
            for prompt in prompts[:per_category]
        )
        for category, prompts in zip(CATEGORIES, texts, strict=True)
    }


def _asked(kind: str, text: str) -> BenchPrompt:
    message: dict[str, Any] = {"role": "user", "content": text}
    return BenchPrompt(kind, text[:20], (message,))
