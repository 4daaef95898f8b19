"""Entropy and margin against torch in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.sampling.entropy import entropy_and_margin

LOGITS = st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=200)


def _expected(row: torch.Tensor) -> tuple[float, float]:
    p = torch.softmax(row.double(), -1)
    best = torch.cat([p, torch.zeros(1, dtype=p.dtype)]).topk(2).values
    return float(-torch.special.xlogy(p, p).sum()), float(best[0] - best[1])


@settings(deadline=None)  # the first call compiles
@given(values=LOGITS, dtype=st.sampled_from([torch.float32, torch.float64]))
def test_any_row(values: list[float], dtype: torch.dtype) -> None:
    row = torch.tensor(values, dtype=dtype)
    [found] = entropy_and_margin(row[None], [0])
    assert found == pytest.approx(_expected(row), abs=2e-4, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_of_a_vocabulary_in_the_asked_order(dtype: torch.dtype) -> None:
    logits = (4 * torch.randn(3, 49_152, generator=torch.Generator().manual_seed(0))).to(dtype)
    found = entropy_and_margin(logits, [2, 0])
    for pair, row in zip(found, (logits[2], logits[0]), strict=True):
        assert pair == pytest.approx(_expected(row), abs=1e-3)


def test_ids_that_may_not_come_weigh_nothing() -> None:
    row = torch.tensor([[1.0, -math.inf, 1.0, -math.inf]])
    assert entropy_and_margin(row, [0]) == [pytest.approx((math.log(2), 0.0), abs=1e-6)]


def test_equal_best_have_no_margin() -> None:
    row = torch.zeros(1, 64)
    assert entropy_and_margin(row, [0]) == [pytest.approx((math.log(64), 0.0), abs=1e-5)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_unsound_row_raises_nothing_and_spares_the_others(bad: float) -> None:
    logits = torch.tensor([[bad, 0.0], [0.0, 0.0]])
    assert entropy_and_margin(logits, [0, 1])[1] == pytest.approx((math.log(2), 0.0), abs=1e-6)


def test_no_rows() -> None:
    assert entropy_and_margin(torch.zeros(1, 4), []) == []
