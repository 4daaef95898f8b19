"""Prompts of the suite `server`: kinds of text by how much there is to draft from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from whiflash.bench.prompts import BenchPrompt, all_prompts

_CODE: Final = (
    "Write a Python function that returns the running total of a list of numbers, then one that "
    "returns the running maximum, then one that returns the running minimum.",
    "Write a Python class Stack with push, pop, peek and is_empty, each with a docstring.",
    "Write a SQL table for books with title, author, year and price, and five INSERT statements.",
)
_CREATIVE: Final = (
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "Describe a night market on a floating island for someone who has never seen one.",
    "Write the opening of a mystery set in a small mountain village in winter.",
)


LOOP: Final = "tool loop"


@dataclass(frozen=True, slots=True)
class ServedKind:
    """Prompts of one kind, and how they are sampled. Every request has a seed of its own."""

    name: str
    conversations: tuple[BenchPrompt, ...]
    temperature: float


def served_kinds() -> tuple[ServedKind, ...]:
    """Chat and creative text are sampled, code and tool loops greedy, as people serve them."""
    own = tuple(all_prompts())
    chats = tuple(prompt for prompt in own if prompt.kind == "chat")
    loops = tuple(prompt for prompt in own if prompt.kind == LOOP)
    return (
        ServedKind("chat", chats, 0.8),
        ServedKind("code", tuple(_asked("code", text) for text in _CODE), 0.0),
        ServedKind("creative", tuple(_asked("creative", text) for text in _CREATIVE), 0.8),
        ServedKind(LOOP, loops, 0.0),
    )


def _asked(kind: str, text: str) -> BenchPrompt:
    message: dict[str, Any] = {"role": "user", "content": text}
    return BenchPrompt(kind, text[:20], (message,))
