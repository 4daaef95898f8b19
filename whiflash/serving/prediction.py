"""How much of an expected text came true: the two numbers in OpenAI's usage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

INLINE_CELLS = 250_000


async def count_prediction(predicted: Sequence[int], answer: Sequence[int]) -> tuple[int, int]:
    """(accepted, rejected) tokens of a prediction. Accepted are those that the answer holds in
    the same order: the longest common subsequence of ids. O(n m), off the event loop if large."""
    if len(predicted) * len(answer) <= INLINE_CELLS:
        accepted = common_subsequence(predicted, answer)
    else:
        accepted = await asyncio.to_thread(common_subsequence, predicted, answer)
    return accepted, len(predicted) - accepted


def common_subsequence(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common subsequence. A row of the usual table at a time: a cell that
    a match raises lifts all cells to its right, which is a running maximum."""
    if not first or not second:
        return 0
    other = np.asarray(second, np.int64)
    row = np.zeros(len(other) + 1, np.int64)
    for item in first:
        raised = np.maximum(row[1:], row[:-1] + (other == item))
        np.maximum.accumulate(raised, out=row[1:])
    return int(row[-1])
