"""Repetition shares against a count by definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whiflash.bench.repetition import copied_share, repeated_share

TOKENS = st.lists(st.integers(0, 2), max_size=40)


def by_definition(tokens: list[int], size: int) -> float:
    grams = {i: tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    repeated = [i for i in grams if any(grams[i] == grams[j] for j in range(i))]
    inside = {i + k for i in repeated for k in range(size)}
    return len(inside) / len(tokens) if tokens else 0.0


@given(TOKENS, st.integers(1, 5))
def test_repeated_share(tokens: list[int], size: int) -> None:
    assert repeated_share(tokens, size) == by_definition(tokens, size)


def test_nothing_repeats_in_a_text_of_different_tokens() -> None:
    assert repeated_share(list(range(100))) == 0.0


def test_a_loop_repeats_all_but_its_first_turn() -> None:
    assert repeated_share(list(range(10)) * 10) == 0.9


def test_copied_share() -> None:
    prompt = list(range(20))
    assert copied_share([100, *range(8), 101], prompt) == 0.8
    assert copied_share(list(range(7)), prompt) == 0.0
    assert copied_share([], prompt) == 0.0
