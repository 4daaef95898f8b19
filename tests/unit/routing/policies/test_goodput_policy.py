"""goodput: learns which arm is worth what, and lets go and comes back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Choice, Outcome, RouteRow
from whiflash.core.shape import DraftShape
from whiflash.core.signals import Signals
from whiflash.models.shipped import checkpoints_folder
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.goodput import GoodputPolicy
from whiflash.routing.setting import PolicySetting
from whiflash.routing.trust import trusted

CURVE = CostCurve(((1, 20.0), (64, 83.0)))


def make_row(drafts=None, arms=("a",), max_nodes=8, namespace="n", entropy=0.3) -> RouteRow:
    return RouteRow(0, namespace, Signals(entropy, 0.5), (NONE, *arms), drafts or {}, 8, max_nodes)


def chain(length=4, odds=0.8) -> DraftTree:
    return DraftTree.chain([1] * length, odds ** np.arange(1, length + 1))


def policy(**options) -> GoodputPolicy:
    return GoodputPolicy(CostModel(CURVE), **({"explore_share": 0.0} | options))


def outcome(row, accepted, drafted=4, arm="a", ended=False) -> Outcome:
    return Outcome(row, Choice(arm, drafted), drafted, accepted, accepted + 1, ended)


def survival(learner, row, arm="a"):
    return learner.predict([row])[0].survival[arm]


def claimed(row, length=4):
    """What `chain` says of itself, as far as it can be trusted at `row`."""
    return trusted([row], 0.8 ** np.arange(1.0, length + 1)[None])[0]


def test_starts_with_what_the_draft_claims():
    row = make_row({"a": chain()})
    assert survival(policy(), row) == pytest.approx(claimed(row), rel=1e-6)


def test_rows_without_a_draft_are_not_predicted():
    learner = policy()
    rows = [
        make_row({"a": DraftTree.empty()}),
        make_row({"a": chain()}, max_nodes=0),
        make_row(arms=()),
    ]
    assert [p.survival for p in learner.predict(rows)] == [{}, {}, {}]
    assert learner.predict([]) == []


def test_prefers_the_arm_that_is_accepted():
    learner, row = policy(), make_row({"a": chain(), "b": chain()}, arms=("a", "b"))
    for _ in range(100):
        learner.predict([row])
        learner.observe([outcome(row, 4, arm="a"), outcome(row, 0, arm="b")])
    (prediction,) = learner.predict([row])
    assert prediction.survival["a"].sum() > 3.5
    assert prediction.survival["b"].sum() < 0.4
    learner.check_integrity()


def test_survival_falls_with_rank_and_stays_a_probability():
    learner, row = policy(), make_row({"a": chain(8)})
    random = np.random.default_rng(0)
    for _ in range(60):
        learner.observe([outcome(row, int(random.integers(0, 9)), drafted=8)])
        odds = survival(learner, row)
        assert np.all(np.diff(odds) <= 0.0)
        assert odds[-1] >= 0.0
        assert odds[0] <= 1.0


def test_the_sum_is_the_expected_number_of_accepted_tokens():
    learner, row = policy(), make_row({"a": chain(6, 0.9)})
    random = np.random.default_rng(1)
    counts = []
    for _ in range(600):
        counts.append(min(int(random.geometric(0.5)) - 1, 6))
        learner.predict([row])
        learner.observe([outcome(row, counts[-1], drafted=6)])
    assert survival(learner, row).sum() == pytest.approx(np.mean(counts[-200:]), rel=0.15)


def test_rounds_that_ended_a_turn_teach_nothing():
    learner, row = policy(), make_row({"a": chain()})
    for _ in range(200):
        learner.observe([outcome(row, 0, ended=True)])
    assert survival(learner, row) == pytest.approx(claimed(row), rel=1e-6)


def test_a_trees_accepted_tokens_are_conserved():
    """Ranks of a tree's accepted path are not reported; the total must still come out right."""
    tree = DraftTree.from_parents([1, 2, 3, 4], [0, 0, 1, 2], [0.5, 0.3, 0.4, 0.2])
    learner, row = policy(), make_row({"a": tree})
    for _ in range(300):
        learner.predict([row])
        learner.observe([outcome(row, 1)])
    assert survival(learner, row).sum() == pytest.approx(1.0, rel=0.1)


def test_entropy_buckets_are_told_apart():
    learner = policy()
    calm, wild = (make_row({"a": chain()}, entropy=e) for e in (0.05, 4.0))
    for _ in range(100):
        learner.predict([calm, wild])
        learner.observe([outcome(calm, 4), outcome(wild, 0)])
    assert survival(learner, calm).sum() > 3.0
    assert survival(learner, wild).sum() < 0.7


def test_an_arm_that_must_still_draft_starts_from_its_cost():
    """The prior just pays the draft for a lone row, so a dear drafter must promise more."""
    cheap = GoodputPolicy(CostModel(CURVE, {"a": (1.0, 0.0)}), explore_share=0.0)
    dear = GoodputPolicy(CostModel(CURVE, {"a": (12.0, 0.0)}), explore_share=0.0)
    row = make_row()
    assert 0.05 < survival(cheap, row).sum() < survival(dear, row).sum()
    for count in (1, 3):
        assert len(survival(cheap, make_row(max_nodes=count))) == count


def test_what_is_passed_over_is_tried_within_a_share_of_time():
    costs = CostModel(CURVE)
    learner = GoodputPolicy(costs, explore_after=20, explore_nodes=2, explore_share=0.01)
    row, tries, spent = make_row({"a": chain()}), 0, 0.0
    for _ in range(4000):
        (prediction,) = learner.predict([row])
        drafted = 0 if prediction.fixed is None else prediction.fixed[1]
        tries += drafted > 0
        spent += costs.verify_ms(1 + drafted) - costs.verify_ms(1)
        arm = "a" if drafted else NONE
        learner.observe([outcome(row, 0, drafted, arm)])
    assert tries > 100
    assert spent <= 0.0101 * 4000 * costs.plain_ms(1)


def test_a_dear_arm_is_tried_too_if_seldom():
    """Savings must reach the price of a try, or the arm would be off for good."""
    learner = GoodputPolicy(CostModel(CURVE, {"a": (200.0, 0.0)}))
    row, tries = make_row(), 0
    for _ in range(6000):
        (prediction,) = learner.predict([row])
        tries += prediction.fixed is not None
        learner.observe([Outcome(row, Choice(NONE, 0), 0, 0, 1, False)])
    assert 1 <= tries <= 6000 * 20.0 * 0.005 / 200.0 + 1


@pytest.mark.parametrize("wrong", [{"window": 0}, {"explore_share": 1.5}, {"prior_tokens": 0.0}])
def test_wrong_values_are_refused(wrong):
    with pytest.raises(ConfigError, match="goodput"):
        policy(**wrong)


def test_shipped_drafters_begin_with_what_their_training_found():
    """Elsewhere, and with other weights, nothing is known of an arm of that name."""
    (found, *_) = sorted(checkpoints_folder().glob("*/eagle3/training.json"))
    table = json.loads(found.read_text())
    positions = table["acceptance"]["all"]["positions"]
    row, costs = make_row(arms=("eagle3",), max_nodes=8), CostModel(CURVE)
    learner, other = (GoodputPolicy(costs, explore_share=0.0) for _ in range(2))
    unknown = survival(learner, row, "eagle3")
    learner.check_setting(PolicySetting(("eagle3",), 576, table["target"]["fingerprint"]))
    other.check_setting(PolicySetting(("eagle3",), 576, "another target"))
    known = survival(learner, row, "eagle3")
    assert known[: len(positions)].tolist() == pytest.approx(positions)
    assert not known[len(positions) :].any()
    # Nobody expects more of an arm than it drafts.
    shape = {"eagle3": DraftShape("chain", 2)}
    fingerprint = table["target"]["fingerprint"]
    learner.check_setting(PolicySetting(("eagle3",), 576, fingerprint, shapes=shape))
    assert survival(learner, row, "eagle3").tolist() == pytest.approx(positions[:2])
    learner.check_setting(PolicySetting(("eagle3",), 576, fingerprint))
    learner.forget_arm("eagle3", "other weights")
    for one in (learner, other):
        assert survival(one, row, "eagle3").tolist() == pytest.approx(unknown.tolist())


def shadow(row, accepted, propensity, arm="b", ended=False) -> Outcome:
    return Outcome(row, Choice(arm, 4), 4, accepted, accepted + 1, ended, propensity)


@pytest.mark.parametrize("accepted", [0, 4])
def test_shadows_teach_of_an_arm_that_is_never_verified(accepted):
    learner, row = policy(), make_row({"a": chain()}, arms=("a", "b"))
    other = make_row({"a": chain()}, arms=("a", "b"), namespace="other")
    before = survival(learner, row, "b")
    for _ in range(20):
        learner.observe([outcome(row, 4)])
        learner.observe_shadows([shadow(row, accepted, 0.03)])
    change = survival(learner, row, "b").sum() / before.sum()
    assert change > 5.0 if accepted else change < 0.5
    assert survival(learner, row, "a").sum() > claimed(row).sum()
    assert survival(learner, other, "b") == pytest.approx(before)
    learner.check_integrity()


def test_a_shadow_counts_for_the_roots_that_were_not_drawn_within_a_bound():
    row = make_row({"a": chain()}, arms=("a", "b"))

    def after(*propensities: float) -> float:
        learner = policy()
        learner.observe_shadows([shadow(row, 0, propensity) for propensity in propensities])
        return float(survival(learner, row, "b").sum())

    assert after(0.5) == pytest.approx(after(1.0, 1.0))
    assert after(1e-6) == pytest.approx(after(0.25))
    assert after(0.25) < after(0.5) < after(1.0)


def test_a_shadow_that_the_text_was_too_short_for_teaches_nothing():
    learner, row = policy(), make_row({"a": chain()}, arms=("a", "b"))
    before = survival(learner, row, "b")
    learner.observe_shadows([shadow(row, 0, 0.1, ended=True)])
    assert survival(learner, row, "b").tolist() == before.tolist()
