"""What drafting elsewhere costs more, from the times of runs."""

from __future__ import annotations

import pytest

from whiflash.bench.remote_measure import RemoteCost, StepTimes


def test_the_share_is_the_median_over_pairs_of_runs() -> None:
    here = [StepTimes(2.0, 20.0, 9), StepTimes(2.0, 40.0, 9), StepTimes(8.0, 40.0, 9)]
    there = [StepTimes(3.0, 21.0, 9), StepTimes(6.0, 44.0, 9), StepTimes(8.4, 40.4, 9)]
    cost = RemoteCost("dflash", 4, here, there)
    assert cost.shares == pytest.approx([0.05, 0.1, 0.01])
    assert cost.share == pytest.approx(0.05)
    assert cost.whole_share == pytest.approx(0.05)
