from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from whiflash.serving.prediction import common_subsequence, count_prediction

Ids = st.lists(st.integers(0, 3), max_size=25)


def by_the_book(first: list[int], second: list[int]) -> int:
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, a in enumerate(first, 1):
        for j, b in enumerate(second, 1):
            table[i][j] = (
                table[i - 1][j - 1] + 1 if a == b else max(table[i - 1][j], table[i][j - 1])
            )
    return table[-1][-1]


@given(Ids, Ids)
def test_counts_the_longest_common_subsequence(first: list[int], second: list[int]) -> None:
    assert common_subsequence(first, second) == by_the_book(first, second)


def test_accepted_and_rejected_add_up_to_the_prediction() -> None:
    predicted = list(range(700))
    answer = [token for token in predicted if token % 7] + [9999] * 5
    assert asyncio.run(count_prediction(predicted, answer)) == (600, 100)
