"""Claims of retrieved drafts, corrected by match length and entropy."""

from __future__ import annotations

import numpy as np
import pytest

from whiflash.core.rows import NONE, RouteRow
from whiflash.core.signals import Signals
from whiflash.routing.trust import trusted


def first(matched: int, entropy: float, claim: float = 0.6) -> float:
    row = RouteRow(0, "n", Signals(entropy, 0.5), (NONE, "retrieval"), {}, matched, 8)
    return float(trusted([row], np.array([[claim, claim**2]]))[0, 0])


@pytest.mark.parametrize("matched", [1, 3, 6, 12, 20])
def test_the_more_the_target_wavers_the_less_a_match_is_worth(matched: int) -> None:
    worth = [first(matched, entropy) for entropy in (0.05, 0.3, 1.0, 2.0, 4.0)]
    assert worth == sorted(worth, reverse=True)


def test_one_token_where_the_target_wavers_is_hardly_worth_a_node() -> None:
    assert first(1, 4.0) < 0.1 < 0.5 < first(12, 4.0, 0.9)


def test_long_matches_are_taken_at_their_word() -> None:
    assert first(64, 4.0, 0.9) == pytest.approx(0.9)


@pytest.mark.parametrize("entropy", [0.0, 1.0, float("nan")])
def test_what_comes_out_are_survivals(entropy: float) -> None:
    rows = [
        RouteRow(0, "n", Signals(entropy, 0.5), (NONE, "retrieval"), {}, matched, 8)
        for matched in (0, 1, 2, 5, 9, 17, 40)
    ]
    odds = trusted(rows, np.repeat(np.array([[0.99, 0.98, 0.4, 0.0]]), len(rows), axis=0))
    assert ((odds >= 0) & (odds < 1)).all()
    assert (np.diff(odds, axis=1) <= 0).all()


def test_no_rows() -> None:
    assert trusted([], np.zeros((0, 4))).shape == (0, 4)
