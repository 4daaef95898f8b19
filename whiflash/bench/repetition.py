"""How much of a text repeats itself: what a speed on that text must be read with."""

from __future__ import annotations

from collections.abc import Sequence

NGRAM_TOKENS = 8


def repeated_share(tokens: Sequence[int], size: int = NGRAM_TOKENS) -> float:
    """Share of tokens that lie inside an n-gram seen earlier in the same text; 0 if shorter."""
    seen: set[tuple[int, ...]] = set()
    inside = [False] * len(tokens)
    for start in range(len(tokens) - size + 1):
        gram = tuple(tokens[start : start + size])
        if gram in seen:
            inside[start : start + size] = [True] * size
        seen.add(gram)
    return sum(inside) / len(tokens) if tokens else 0.0


def copied_share(tokens: Sequence[int], source: Sequence[int], size: int = NGRAM_TOKENS) -> float:
    """Share of tokens that lie inside an n-gram of `source` (the prompt)."""
    known = {tuple(source[i : i + size]) for i in range(len(source) - size + 1)}
    inside = [False] * len(tokens)
    for start in range(len(tokens) - size + 1):
        if tuple(tokens[start : start + size]) in known:
            inside[start : start + size] = [True] * size
    return sum(inside) / len(tokens) if tokens else 0.0
