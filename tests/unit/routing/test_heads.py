"""Learned heads: survival, what they read, and what happens where they say nothing."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Choice, Outcome, RouteRow
from whiflash.core.shape import DraftShape
from whiflash.core.signals import Signals
from whiflash.routing.costs import CostModel
from whiflash.routing.heads import NUM_KNOTS, NUM_RANKS, HeadArm, SurvivalHeads, num_signals
from whiflash.routing.policies.goodput import GoodputPolicy
from whiflash.routing.recent import RecentRates
from whiflash.routing.router_file import RouterFile, as_stored
from whiflash.routing.setting import PolicySetting, check_setting

HIDDEN, WIDTH = 6, 4
ARMS = (HeadArm("retrieval", True, 8), HeadArm("eagle3", False, 5))
COSTS = CostModel(CostCurve(((1, 20.0), (64, 83.0))))


def stored(values: np.ndarray) -> np.ndarray:
    """As a file keeps weights."""
    return as_stored(torch.from_numpy(values)).numpy()


def heads(seed: int = 0, **changed: np.ndarray) -> SurvivalHeads:
    random = np.random.default_rng(seed)
    signals, outs = num_signals(len(ARMS)), len(ARMS) * NUM_RANKS
    knots = np.linspace(0.0, 1.0, NUM_KNOTS)
    sizes = {"hidden_weight": (WIDTH, HIDDEN), "hidden_mean": (HIDDEN,),
             "signal_weight": (WIDTH, signals), "bias": (WIDTH,), "out_weight": (outs, WIDTH),
             "out_bias": (outs,)}  # fmt: skip
    made = {name: stored(random.normal(size=size)) for name, size in sizes.items()}
    made["claim_weight"] = np.array([[1.0, 1.0], [0.0, 0.0]], np.float32)
    made["claimed"] = np.stack([knots, knots]).astype(np.float32)
    made["true"] = np.stack([knots**2, knots / 2]).astype(np.float32)
    return SurvivalHeads(ARMS, **(made | changed))


def row(hidden=None, drafts=None, entropy=0.4, **more) -> RouteRow:
    state = None if hidden is None else np.asarray(hidden, np.float32)
    return RouteRow(0, "n", Signals(entropy, 0.5, state), (NONE, "retrieval", "eagle3"),
                    drafts or {}, 8, 12, **more)  # fmt: skip


def chain(length=4, odds=0.8) -> DraftTree:
    return DraftTree.chain([1] * length, odds ** np.arange(1, length + 1))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "router.safetensors"
    RouterFile("f", heads=heads()).write(path)
    return path


def policy(file, **options) -> GoodputPolicy:
    return GoodputPolicy(COSTS, file=str(file), **({"explore_share": 0.0} | options))


def by_hand(model: SurvivalHeads, asked: RouteRow, place: int, claims=None) -> list[float]:
    """The formula of the docstring, a number at a time."""
    state = asked.signals.hidden
    x = np.zeros(HIDDEN) if state is None else state - model.hidden_mean
    cells = [asked.signals.entropy, asked.signals.margin, np.log1p(asked.matched)]
    for arm in ("retrieval", "eagle3"):
        rate = asked.recent_rates.get(arm)
        cells += [0.0, 0.0] if rate is None else [rate, 1.0]
    inner = model.hidden_weight @ x + model.signal_weight @ np.array(cells) + model.bias
    inner = inner / (1.0 + np.exp(-inner))
    z = model.out_weight @ inner + model.out_bias
    odds, survival = 1.0, []
    for rank in range(12):
        step = z[place * NUM_RANKS + rank]
        if claims is not None:
            ratio = claims[rank] / (claims[rank - 1] if rank else 1.0)
            step = step + np.log(ratio / (1.0 - ratio))
        odds *= 1.0 / (1.0 + np.exp(-step))
        survival.append(odds if claims is not None or rank < ARMS[place].max_nodes else 0.0)
    return survival


def test_the_file_keeps_what_the_policy_reads(file):
    """Both kinds of arm, with and without a hidden state, as the formula says."""
    asked = [
        row(np.arange(HIDDEN), {"retrieval": chain(12)}, recent_rates={"eagle3": 0.25}),
        row(None, {"retrieval": chain(12, 0.6)}, entropy=2.0),
    ]
    found = policy(file).predict(asked)
    for one, prediction, odds in zip(asked, found, (0.8, 0.6), strict=True):
        claims = np.float32(odds) ** np.arange(1, 13)
        for place, arm, claimed in ((0, "retrieval", claims), (1, "eagle3", None)):
            expected = by_hand(heads(), one, place, claimed)
            assert prediction.survival[arm] == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_an_arm_that_drafted_earlier_than_in_training_is_read_without_its_head(file):
    plain = GoodputPolicy(COSTS, file="none", explore_share=0.0)
    early = row(np.zeros(HIDDEN), {"eagle3": chain()})
    learned = policy(file).predict([early])[0].survival["eagle3"]
    assert learned == pytest.approx(plain.predict([early])[0].survival["eagle3"])


@given(
    arrays.arrays(np.float32, HIDDEN, elements=st.floats(-1e4, 1e4, width=32)),
    st.floats(0, 50),
    st.integers(1, 12),
)
def test_survival_is_a_falling_probability_whatever_the_state(state, entropy, length):
    learner = GoodputPolicy(COSTS, file="none")
    learner._take(RouterFile("f", heads=heads(3)))
    prediction = learner.predict([row(state, {"retrieval": chain(length)}, entropy)])[0]
    for odds in prediction.survival.values():
        assert ((odds >= 0) & (odds <= 1)).all()
        assert (np.diff(odds) <= 0).all()


def test_a_head_that_gives_no_number_is_off_and_named(file, caplog):
    learner = policy(file)
    broken = heads().out_bias.copy()
    broken[NUM_RANKS] = np.nan  # eagle3's first rank
    learner._expected.take(heads(out_bias=broken))
    plain = GoodputPolicy(COSTS, file="none", explore_share=0.0)
    asked = row(np.ones(HIDDEN), {"retrieval": chain()})
    with caplog.at_level(logging.ERROR):
        found = [learner.predict([asked])[0].survival for _ in range(3)][-1]
    assert len(caplog.records) == 1
    assert "eagle3" in caplog.text
    assert learner.describe()["heads_off"] == ["eagle3"]
    assert found["eagle3"] == pytest.approx(plain.predict([asked])[0].survival["eagle3"])
    assert found["retrieval"] != pytest.approx(plain.predict([asked])[0].survival["retrieval"])


def test_a_row_without_sound_signals_is_read_without_heads_and_its_neighbours_with(file):
    learner, plain = policy(file), GoodputPolicy(COSTS, file="none", explore_share=0.0)
    bad, good = row([np.nan] * HIDDEN), row(np.ones(HIDDEN))
    found = learner.predict([bad, good])
    assert found[0].survival["eagle3"] == pytest.approx(plain.predict([bad])[0].survival["eagle3"])
    assert found[1].survival["eagle3"] == pytest.approx(by_hand(heads(), good, 1), rel=1e-3)
    assert learner.describe() == {
        "file": str(file), "reverts": 0, "heads": ["retrieval", "eagle3"], "heads_off": [],
        "bad_rows": 1,
    }  # fmt: skip


def test_online_corrections_step_boundedly_and_can_be_taken_back(file):
    """One round of nothing moves a factor by at most head_step; many move it far; revert undoes."""
    learner = policy(file, head_step=0.05, head_tokens=4.0)
    asked = row(np.ones(HIDDEN), {"retrieval": chain(8, 0.95)})
    first = learner.predict([asked])[0].survival["retrieval"]
    lost = Outcome(asked, Choice("retrieval", 8), 8, 0, 1, False)
    learner.observe([lost])
    second = learner.predict([asked])[0].survival["retrieval"]
    # The arm's table and the bucket's may each move.
    assert (second >= first / 1.05**2 * 0.999).all()
    assert second[0] < first[0]
    for _ in range(200):
        learner.observe([lost])
    assert learner.predict([asked])[0].survival["retrieval"][0] < 0.5 * first[0]
    learner.revert()
    assert learner.predict([asked])[0].survival["retrieval"] == pytest.approx(first)
    assert learner.num_reverts == 1
    learner.check_integrity()


def test_a_head_says_nothing_of_trees_that_it_never_saw(tmp_path, caplog):
    """Survival by rank of a chain is not that of a tree; a shorter chain is a part of it."""
    path = tmp_path / "router.safetensors"
    made = replace(heads(), arms=(ARMS[0], replace(ARMS[1], tree="chain")))
    RouterFile("f", heads=made).write(path)
    learned, plain = policy(path), GoodputPolicy(COSTS, file="none", explore_share=0.0)
    asked = row(np.ones(HIDDEN))
    for shape, off in ((DraftShape("chain", 2), []), (DraftShape("eagle2", 59), ["eagle3"])):
        setting = PolicySetting(("eagle3",), HIDDEN, "f", shapes={"eagle3": shape})
        for one in (learned, plain):
            check_setting(one, setting)
        found, other = (one.predict([asked])[0].survival["eagle3"] for one in (learned, plain))
        assert len(found) == min(shape.max_nodes, 12)
        assert learned.describe()["heads_off"] == off
        assert (found.tolist() == pytest.approx(other.tolist())) == bool(off)
    assert "trained on tree=chain" in caplog.text


def test_drafts_that_come_later_are_read_as_they_came_true(file):
    learner = policy(file)
    claims = np.array([0.9, 0.5, 0.1])
    assert learner.calibrated("eagle3", claims) == pytest.approx(claims / 2, abs=1e-3)
    assert learner.calibrated("other", claims) is claims
    learner.forget_arm("eagle3", "new")
    assert learner.calibrated("eagle3", claims) is claims


def test_what_does_not_fit_is_refused(file, tmp_path):
    learner = policy(file)
    check_setting(learner, PolicySetting(("eagle3",), HIDDEN, "f"))
    for setting, told in (
        (PolicySetting(("eagle3",), HIDDEN + 1, "f"), "of 6, but the target's is 7"),
        (PolicySetting(("eagle3",), HIDDEN, "g"), "belongs to the target f"),
        (PolicySetting(("dflash",), HIDDEN, "f"), "knows retrieval, eagle3"),
    ):
        with pytest.raises(ConfigError, match=told):
            check_setting(learner, setting)
    check_setting(learner, PolicySetting(("eagle3",), 0, "f", is_replay=True))
    assert not learner.needs.hidden
    short = heads(out_bias=np.zeros(NUM_RANKS, np.float32))
    RouterFile("f", heads=short).write(tmp_path / "short.safetensors")
    with pytest.raises(ConfigError, match=r"out_bias has shape \(16,\), expected \(32,\)"):
        policy(tmp_path / "short.safetensors")
    twice = replace(heads(), arms=(ARMS[0], ARMS[0]))
    RouterFile("f", heads=twice).write(tmp_path / "twice.safetensors")
    with pytest.raises(ConfigError, match="or one twice"):
        policy(tmp_path / "twice.safetensors")


def test_recent_rates_count_a_rejection_once_and_a_cut_draft_not_at_all():
    recent = RecentRates()
    assert recent.rates() == {}
    recent.note("a", 0, 0)
    assert recent.rates() == {}
    recent.note("a", 4, 4)
    assert recent.rates() == {"a": 1.0}
    recent.note("a", 0, 4)
    assert recent.rates()["a"] == pytest.approx(3.0 / 4.0)
    recent.note("b", 1, 5)
    assert recent.rates()["b"] == 0.5
