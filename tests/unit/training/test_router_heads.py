"""Heads learn what hidden states and signals tell, and calibration what claims came to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.errors import ConfigError
from whiflash.core.signals import Signals
from whiflash.routing.heads import NUM_KNOTS, NUM_RANKS, HeadArm, num_signals, steps_of
from whiflash.routing.replay.turns import Proposal, Root, Turn
from whiflash.training.clock import TimeLimit
from whiflash.training.router.heads import HeadSettings, train_heads
from whiflash.training.router.isotonic import pooled, rising_curve
from whiflash.training.router.reliability import head_report, reliability
from whiflash.training.router.samples import HeadSamples, _label, _visited

ARMS = (HeadArm("eagle3", False, 4), HeadArm("retrieval", True, 4))


def _samples(count: int) -> HeadSamples:
    """eagle3 is accepted by the sign of a hidden number, retrieval half as often as it claims."""
    random = np.random.default_rng(0)
    hidden = random.normal(size=(count, 8)).astype(np.float32) * 3 + 5
    claims = np.zeros((count, 2, NUM_RANKS))
    claims[:, 1, :4] = random.uniform(0.2, 1.0, (count, 1)) ** np.arange(1, 5)
    steps = np.where(hidden[:, :1] > 5, 0.9, 0.2)
    first = np.minimum.accumulate(random.random((count, 4)) < steps, axis=1)
    second = np.repeat(random.random((count, 1)) < 0.5 * claims[:, 1, :1], 4, axis=1)
    second &= random.random((count, 4)) < 0.9
    hits = np.zeros((count, 2, NUM_RANKS))
    hits[:, 0, :4], hits[:, 1, :4] = first, np.minimum.accumulate(second, axis=1)
    known = np.zeros((count, 2, NUM_RANKS), bool)
    known[:, 0], known[:, 1, :4] = True, True
    number = torch.arange(count)
    return HeadSamples(
        hidden=torch.from_numpy(hidden),
        signals=torch.rand(count, num_signals(2), generator=torch.Generator().manual_seed(1)),
        steps=torch.from_numpy(np.stack([steps_of(claims[:, a]) for a in range(2)], 1)).float(),
        claims=torch.from_numpy(claims).float(),
        hits=torch.from_numpy(hits).float(),
        is_known=torch.from_numpy(known),
        is_held_out=number % 5 == 0,
        is_tuning=number % 5 == 1,
    )


def test_heads_learn_what_is_there_and_say_how_sure_they_are() -> None:
    samples = _samples(4000)
    settings = HeadSettings(width=16)
    heads = train_heads(samples, ARMS, settings, TimeLimit(1), lambda _error: None)
    told = head_report(heads, samples)["arms"]
    # Two equally likely lengths with means 4.1 and 1.25; what is left is chance.
    assert told["eagle3"]["explained"] > 0.45
    assert told["eagle3"]["error"] < 0.75 * told["eagle3"]["error_of_rates"]
    assert told["retrieval"]["error"] < told["retrieval"]["error_of_rates"]
    for arm in told.values():
        assert arm["expected"] == pytest.approx(arm["accepted_length"], abs=0.1)
        for row in arm["reliability"]:
            assert row["nodes"] < 150 or row["said"] == pytest.approx(row["true"], abs=0.12)
    # Beyond the longest draft nothing is expected, at the mean state too.
    blind = heads.logits(np.zeros((1, 8), np.float32), samples.signals[:1].numpy())
    odds = heads.survival(blind[:, 0], np.array([0]), np.zeros((1, 9)))[0]
    assert 0.3 < odds[0] < 0.8
    assert not odds[4:].any()
    claims = samples.claims[:, 1, 0].double().numpy()
    assert heads.calibrated("retrieval", claims).mean() < 0.65 * claims.mean()


def test_same_seed_same_heads() -> None:
    samples = _samples(600)
    settings = HeadSettings(width=8, max_epochs=3)
    one, other = (
        train_heads(samples, ARMS, settings, TimeLimit(None), lambda _e: None) for _ in range(2)
    )
    for name in ("hidden_weight", "out_weight", "claim_weight", "true"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_too_few_roots_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few for heads"):
        train_heads(_samples(100), ARMS, HeadSettings(), TimeLimit(None), lambda _e: None)


def _root(nodes: int, ranks: tuple[int, ...], entropy: float = 0.5) -> Root:
    proposal = Proposal(nodes, tuple(0.5 ** (k + 1) for k in range(nodes)), ranks)
    proposals = {"eagle3": proposal, "retrieval": proposal}
    return Root(Signals(entropy, 0.5), 3, 8, 1, proposals)


@pytest.mark.parametrize(
    ("arm", "nodes", "ranks", "left", "hits", "known"),
    [
        (ARMS[0], 3, (0, 1), 9, [1, 1, 0, 0], NUM_RANKS),  # rejected: nothing follows, surely
        (ARMS[1], 3, (0, 1), 9, [1, 1, 0, 0], 3),  # at hand: what it has not is not asked
        (ARMS[0], 3, (0, 1), 2, [1, 1, 0, 0], 2),  # the text ended: the third is censored
        (ARMS[1], 0, (), 9, [0, 0, 0, 0], 0),  # nothing found: nobody asks
        (ARMS[0], 0, (), 9, [0, 0, 0, 0], NUM_RANKS),  # it was asked and drafted nothing
    ],
)
def test_labels_are_what_the_text_says_and_no_more(arm, nodes, ranks, left, hits, known) -> None:
    claims, found = np.zeros(NUM_RANKS), np.zeros(NUM_RANKS)
    is_known = np.zeros(NUM_RANKS, bool)
    _label(_root(nodes, ranks), arm, left, claims, found, is_known)
    assert found[:4].tolist() == hits
    assert is_known.sum() == known


def test_walks_see_outcomes_of_arms_that_they_took_only() -> None:
    """Roots that were accepted over are seen by other walks; none twice; rates from the past."""
    turn = Turn(1, {position: _root(3, (0, 1, 2)) for position in range(5, 60)}, last=60)
    rows = _visited(turn, 7, ARMS)
    places = [row.context_tokens for row in rows]
    assert places == sorted(set(places))
    assert len(places) < 55
    assert rows[0].recent_rates == {}
    rates = [row.recent_rates for row in rows]
    assert any(rates)
    assert all(rate == 1.0 for found in rates for rate in found.values())
    assert [row.context_tokens for row in _visited(turn, 7, ARMS)] == places


@given(st.lists(st.tuples(st.floats(0.001, 1.0), st.booleans()), max_size=300))
def test_the_curve_rises_and_stays_a_probability(nodes: list[tuple[float, bool]]) -> None:
    claimed, true = rising_curve(
        np.array([c for c, _ in nodes]), np.array([float(h) for _, h in nodes])
    )
    assert claimed.shape == true.shape == (NUM_KNOTS,)
    assert (np.diff(claimed) > 0).all()
    assert (np.diff(true) >= 0).all()
    assert ((true >= 0) & (true <= 1)).all()


def test_pooling_is_the_closest_rising_sequence() -> None:
    from scipy.optimize import isotonic_regression

    random = np.random.default_rng(2)
    for _ in range(20):
        values, weights = random.random(9), random.random(9) + 0.1
        expected = isotonic_regression(values, weights=weights).x
        assert pooled(values, weights) == pytest.approx(expected)


def test_reliability_counts_every_node_once() -> None:
    said = np.array([0.05, 0.05, 0.95, 1.0])
    rows = reliability(said, np.array([0.0, 1.0, 1.0, 1.0]))
    assert rows == [
        {"said": 0.05, "true": 0.5, "nodes": 2},
        {"said": 0.975, "true": 1.0, "nodes": 2},
    ]
