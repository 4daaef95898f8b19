"""Signals at new roots, against the distributions themselves."""

from __future__ import annotations

import pytest
import torch

from whiflash.core.draft import DraftTree
from whiflash.core.signals import SignalNeeds
from whiflash.engine.root_signals import Visit, root_signals

LOGITS = torch.randn(12, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
HIDDEN = torch.arange(12 * 3, dtype=torch.float64).reshape(12, 3)
P = torch.softmax(LOGITS, -1)
EMPTY = DraftTree.empty()


def entropy(row: int) -> float:
    return float(-(P[row] * P[row].log()).sum())


def signals_of(visit: Visit, needs: SignalNeeds):
    return root_signals(LOGITS, HIDDEN, [visit], needs)[0]


def test_entropy_and_margin_at_the_last_row_and_nothing_unasked():
    told = signals_of(Visit(2, (0, 1, 3), DraftTree.chain([1, 2, 3])), SignalNeeds())
    top = P[5].topk(2).values
    assert told.entropy == pytest.approx(entropy(5), rel=1e-5)
    assert told.margin == pytest.approx(float(top[0] - top[1]), rel=1e-5)
    assert (told.hidden, told.recent, told.agreement) == (None, (), None)
    assert root_signals(LOGITS, HIDDEN, [], SignalNeeds()) == []


def test_the_hidden_state_is_the_last_rows():
    told = signals_of(Visit(2, (0, 3), EMPTY), SignalNeeds(hidden=True))
    assert told.hidden is not None
    assert told.hidden.tolist() == HIDDEN[5].tolist()
    assert told.hidden.dtype == "float32"


@pytest.mark.parametrize(
    ("path", "lookback", "rows", "old"),
    [
        ((0,), 3, [4], 2),
        ((0, 1), 3, [5, 4], 1),
        ((0, 1, 3, 4), 3, [8, 7, 5], 0),
        ((0, 1), 1, [5], 0),
    ],
)
def test_entropies_of_the_last_tokens_latest_first(path, lookback, rows, old):
    """Those of this forward, then what was known before, as many as asked."""
    known = (0.25, 0.5, 0.75)
    told = signals_of(Visit(4, path, EMPTY, known), SignalNeeds(lookback=lookback))
    assert told.recent == pytest.approx([*map(entropy, rows), *known[:old]], rel=1e-5)
    assert told.recent[0] == told.entropy


def test_agreement_goes_on_behind_a_rejection():
    """A chain of three of which one was accepted: the target has looked at all of them."""
    tree = DraftTree.chain([7, 8, 9])
    told = signals_of(Visit(1, (0, 1), tree), SignalNeeds(agreement=True))
    expected = [P[1, 7], P[2, 8], P[3, 9]]
    assert told.agreement == pytest.approx([float(p) for p in expected], rel=1e-5)
    assert signals_of(Visit(1, (0,), EMPTY), SignalNeeds(agreement=True)).agreement == ()


def test_agreement_of_a_tree_counts_siblings_along_the_accepted_path():
    tree = DraftTree.from_parents([5, 6, 7, 8, 9], [0, 0, 1, 2, 2])
    told = signals_of(Visit(0, (0, 2), tree), SignalNeeds(agreement=True))
    expected = [float(P[0, 5] + P[0, 6]), float(P[2, 8] + P[2, 9])]
    assert told.agreement == pytest.approx(expected, rel=1e-5)


def test_needs_add_up():
    both = SignalNeeds(hidden=True, lookback=2) | SignalNeeds(lookback=3, agreement=True)
    assert both == SignalNeeds(True, 3, True)
