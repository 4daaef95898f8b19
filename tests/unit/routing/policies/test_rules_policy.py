"""rules: Arctic's score, TensorRT-LLM's match length, ReSpec's trigger, against cases by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Choice, Outcome, RouteRow
from whiflash.core.signals import Signals
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import make_policy
from whiflash.routing.published import ReSpec
from whiflash.routing.setting import PolicySetting, check_setting, signal_needs

COSTS = CostModel(CostCurve(((1, 20.0), (64, 83.0))))
MODEL = ("eagle3", 8)


def chain(*odds: float, source: str = "live") -> DraftTree:
    return DraftTree.chain([1] * len(odds), list(odds), source)


def row_of(
    tree=None, matched=10, entropy=0.3, recent=(), arms=("retrieval", "eagle3"), namespace="n"
):
    drafts = {"retrieval": tree if tree is not None else DraftTree.empty()}
    signals = Signals(entropy, 0.5, recent=recent)
    return RouteRow(0, namespace, signals, (NONE, *arms), drafts, matched, 8)


def choice(policy, row):
    return policy.predict([row])[0].fixed


def test_arctic_retrieves_once_the_score_reaches_what_the_model_would_draft():
    policy = make_policy("rules", COSTS, rule="arctic")  # 3 tokens
    assert choice(policy, row_of(chain(1.0, 1.0, 0.6, 0.4))) == ("retrieval", 4)  # 3.0
    assert choice(policy, row_of(chain(1.0, 1.0, 0.5, 0.4))) == MODEL  # 2.9
    assert choice(make_policy("rules", COSTS, draft_tokens=2), row_of(chain(1, 1)))[0] != "eagle3"


def test_arctics_draft_grows_with_the_match_and_ends_where_it_is_unlikely():
    tree = chain(1.0, 1.0, 1.0, 1.0, 0.09)
    policy = make_policy("rules", COSTS)
    assert choice(policy, row_of(tree, matched=9)) == ("retrieval", 4)
    assert choice(policy, row_of(tree, matched=3)) == ("retrieval", 3)
    assert choice(policy, row_of(tree, matched=2)) == MODEL  # two tokens cannot score three
    longer = make_policy("rules", COSTS, factor=2.0, offset=-1.0)
    assert choice(longer, row_of(tree, matched=2)) == ("retrieval", 3)


def test_arctic_without_a_model_takes_every_suffix_draft_and_knows_an_upper_batch():
    alone = ("retrieval",)
    assert choice(make_policy("rules", COSTS), row_of(chain(0.2), arms=alone)) == ("retrieval", 1)
    assert choice(make_policy("rules", COSTS), row_of(arms=alone)) == (NONE, 0)
    policy = make_policy("rules", COSTS, disable_by_batch_size=1)
    rows = [row_of(chain(1.0, 1.0, 1.0))] * 2
    assert choice(policy, rows[0]) == ("retrieval", 3)
    assert [p.fixed for p in policy.predict(rows)] == [(NONE, 0)] * 2


def test_trtllm_overrides_the_model_behind_four_matched_tokens():
    policy = make_policy("rules", COSTS, rule="trtllm")
    unlikely = chain(0.1, 0.05)
    assert choice(policy, row_of(unlikely, matched=4)) == ("retrieval", 8)
    assert choice(policy, row_of(unlikely, matched=3)) == MODEL
    assert choice(policy, row_of(matched=9)) == MODEL  # matched, and nothing followed
    assert choice(policy, row_of(unlikely, matched=3, arms=("retrieval",))) == (NONE, 0)
    nine = make_policy("rules", COSTS, rule="trtllm", min_match=9)
    assert choice(nine, row_of(unlikely, matched=8)) == MODEL


@pytest.mark.parametrize(
    ("recent", "mean"),
    [
        ((1.0,), 1.0),
        ((1.0, 1.0), 1.0),  # C_1 = 2.0, C_2 = 1.5
        ((0.1, 5.0, 5.0), 0.1),  # C = 1.1, 3.05, 3.7
        ((2.0, 0.0, 1.0), 1.0),  # C = 3.0, 1.5, 1.333: k = 3
        ((2.0, 0.4, 3.6), 1.2),  # C = 3.0, 1.7, 2.333: k = 2
        ((2.0, math.nan, 0.0), 2.0),
        ((), math.nan),
        ((math.nan, 0.0), math.nan),
    ],
)
def test_respec_looks_back_as_far_as_is_cheapest(recent, mean):
    """Algorithm 1 with lambda_e = 1: C_k = H_k + 1 / k, k* = argmin C_k."""
    assert ReSpec().mean_entropy(recent) == pytest.approx(mean, nan_ok=True)


def test_respec_retrieves_at_low_entropy_as_much_as_the_score_is_worth():
    policy, tree = make_policy("rules", COSTS, rule="respec"), chain(0.9, 0.8, 0.7)
    assert signal_needs(policy).lookback == 3
    assert choice(policy, row_of(tree, recent=(1.5,))) == ("retrieval", 4)  # S = 0.5 of 8 nodes
    assert choice(policy, row_of(tree, recent=(1.6,))) == MODEL
    assert choice(policy, row_of(tree, recent=(2.0, 0.4, 9.0))) == ("retrieval", 4)
    assert choice(policy, row_of(tree, recent=(math.nan,))) == MODEL
    assert choice(policy, row_of(recent=(0.0,))) == MODEL


def test_respecs_scores_follow_uses_of_the_candidate_in_its_namespace():
    policy = make_policy("rules", COSTS, rule="respec")
    used = row_of(chain(0.9, 0.8, source="context"), recent=(0.0,))

    def use(accepted, ended=False, row=used):
        policy.observe([Outcome(row, Choice("retrieval", 4), 4, accepted, accepted + 1, ended)])

    use(4)  # S = 0.7 * 0.5 + 0.3 * 1 = 0.65
    assert choice(policy, used) == ("retrieval", math.ceil(0.65 * 8))
    use(0, ended=True)
    assert choice(policy, used) == ("retrieval", 6)
    use(0)  # 0.455 < 0.5
    assert choice(policy, used) == MODEL
    others = [row_of(chain(0.9, 0.8, source="live"), recent=(0.0,)),
              row_of(chain(0.9, 0.8, 0.7, source="context"), recent=(0.0,)),
              row_of(chain(0.9, 0.8, source="context"), recent=(0.0,), namespace="m")]  # fmt: skip
    assert {choice(policy, row) for row in others} == {("retrieval", 4)}
    again = row_of(chain(0.3, 0.2, source="context"), matched=2, recent=(0.0,))
    assert choice(policy, again) == MODEL


def test_options_of_another_rule_are_refused_naming_both():
    with pytest.raises(ConfigError, match="min_match= does not go with rule=respec"):
        make_policy("rules", COSTS, rule="respec", min_match=4)
    with pytest.raises(ConfigError, match="no rule 'best'; rules are arctic, trtllm, respec"):
        make_policy("rules", COSTS, rule="best")
    for wrong in ({"draft_tokens": 0}, {"rule": "trtllm", "min_match": 0},
                  {"rule": "respec", "alpha": 0.0}, {"rule": "respec", "lookback": 0}):  # fmt: skip
        with pytest.raises(ConfigError, match="policy 'rules'"):
            make_policy("rules", COSTS, **wrong)


def test_engines_without_the_arms_are_refused():
    check_setting(make_policy("rules", COSTS), PolicySetting(("retrieval",), 8, "f"))
    with pytest.raises(ConfigError, match="add retrieval"):
        check_setting(make_policy("rules", COSTS), PolicySetting(("eagle3",), 8, "f"))
    named = make_policy("rules", COSTS, model="dflash")
    with pytest.raises(ConfigError, match="add dflash"):
        check_setting(named, PolicySetting(("retrieval", "eagle3"), 8, "f"))


odd_floats = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(
    st.sampled_from(["arctic", "trtllm", "respec"]),
    st.lists(odd_floats, max_size=9),
    st.lists(odd_floats, max_size=4),
    st.integers(0, 40),
    st.booleans(),
)
def test_no_signal_and_no_draft_can_crash_a_rule(rule, odds, recent, matched, trim):
    policy = make_policy("rules", COSTS, rule=rule, trim=trim)
    tree = DraftTree.chain([1] * len(odds), np.array(odds, np.float64))
    row = row_of(tree, matched, recent[0] if recent else math.nan, tuple(recent))
    for _ in range(2):
        (answer,) = policy.predict([row])
        if not trim:
            assert answer.fixed[0] in row.arms
            assert 0 <= answer.fixed[1] <= row.max_nodes
        used = Outcome(row, Choice("retrieval", 3), min(3, len(odds)), 0, 1, False)
        policy.observe([used])
    policy.check_integrity()
