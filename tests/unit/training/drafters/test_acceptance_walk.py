"""Rounds along a text: the mean is one plus the positions, exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.training.drafters.acceptance import Acceptance


def test_rounds_begin_where_the_last_one_ended() -> None:
    acceptance = Acceptance(depth=3)
    acceptance.walk([2, 9, 9, 0, 1, 3, 3])  # roots 0, 3 and 4; what begins at 6 ends the text
    assert acceptance.rounds == 3
    assert acceptance.positions == [pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0]
    assert acceptance.accepted_length == pytest.approx(2.0)


@given(st.integers(1, 5), st.lists(st.integers(0, 5), max_size=40))
def test_the_mean_is_one_plus_the_positions(depth: int, counts: list[int]) -> None:
    acceptance = Acceptance(depth)
    acceptance.walk([min(count, depth) for count in counts])
    root = rounds = tokens = 0
    while root + depth <= len(counts):
        step = 1 + min(counts[root], depth)
        root, rounds, tokens = root + step, rounds + 1, tokens + step
    assert acceptance.rounds == rounds
    if rounds:
        assert acceptance.accepted_length == pytest.approx(tokens / rounds)
