"""bandit: MetaSD-UCB's arithmetic, its two rewards, whose rewards count together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.costs import CostCurve
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Choice, Outcome, RouteRow
from whiflash.core.signals import Signals
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.bandit import ArmMeans, BanditPolicy
from whiflash.routing.policies.registry import make_policy
from whiflash.routing.setting import PolicySetting, check_setting, signal_needs

COSTS = CostModel(CostCurve(((1, 20.0), (64, 83.0))))


def row_of(agreement=None, arms=("a", "b"), number=0, namespace="n", max_nodes=4):
    signals = Signals(0.1, 0.5, agreement=agreement)
    return RouteRow(number, namespace, signals, (NONE, *arms), {}, max_nodes=max_nodes)


def play(policy, row, accepted, ended=False, drafted=None):
    """One round; the arm that was taken."""
    arm, budget = policy.predict([row])[0].fixed
    count = budget if drafted is None else drafted
    policy.observe([Outcome(row, Choice(arm, budget), count, accepted, accepted + 1, ended)])
    return arm


def test_the_bound_by_hand():
    """Means 0.5 and 0.4 after 4 and 2 plays: 0.5 + sqrt(2 ln 6 / 4) < 0.4 + sqrt(2 ln 6 / 2)."""
    means = ArmMeans({"a": 4, "b": 2}, {"a": 2.0, "b": 0.8})
    assert 0.5 + math.sqrt(2 * math.log(6) / 4) == pytest.approx(1.4465, abs=1e-4)
    assert 0.4 + math.sqrt(2 * math.log(6) / 2) == pytest.approx(1.7386, abs=1e-4)
    assert means.best(("a", "b"), 1.0) == "b"
    # With beta = 0.3 it is 0.784 against 0.802, with 0.2 0.689 against 0.668.
    assert means.best(("a", "b"), 0.3) == "b"
    assert means.best(("a", "b"), 0.2) == "a"


def test_every_arm_once_then_the_better_one_more_and_more():
    policy = BanditPolicy(COSTS, reward="efficiency", beta=0.2)
    taken = [play(policy, row_of(), accepted=0)]
    taken += [play(policy, row_of(), accepted=3) for _ in range(40)]
    assert taken[:2] == ["a", "b"]
    assert taken.count("b") > 30


def test_divergence_rewards_what_the_target_thought_of_the_draft():
    """Nothing is accepted of either; the target finds b's tokens likelier."""
    policy = BanditPolicy(COSTS, beta=0.05)
    row, taken = row_of(), []
    for _ in range(30):
        arm = play(policy, row, accepted=0)
        taken.append(arm)
        row = row_of(agreement=(0.1, 0.1, 0.0, 0.0) if arm == "a" else (0.4, 0.4, 0.2, 0.0))
    assert taken[:2] == ["a", "b"]
    assert taken.count("b") > 25
    assert signal_needs(policy).agreement


def test_block_divergence_is_a_mean_over_the_whole_block():
    policy = BanditPolicy(COSTS)
    assert play(policy, row_of(), accepted=2) == "a"
    policy.predict([row_of(agreement=(0.9, 0.5, 0.2))])
    state = policy._states.get(0, ArmMeans)
    assert state.sums["a"] == pytest.approx((0.9 + 0.5 + 0.2) / 4)


def test_block_efficiency_is_a_share_of_the_block():
    policy = BanditPolicy(COSTS, reward="efficiency")
    play(policy, row_of(), accepted=3)
    assert policy._states.get(0, ArmMeans).sums == {"a": 0.75}


def test_rounds_that_ended_the_turn_and_plain_steps_teach_nothing():
    policy = BanditPolicy(COSTS, reward="efficiency")
    play(policy, row_of(), accepted=0, ended=True)
    policy.observe([Outcome(row_of(), Choice(NONE, 0), 0, 0, 1, False)])
    assert policy._states.get(0, ArmMeans).plays == {}


@pytest.mark.parametrize("reward", ["efficiency", "divergence"])
def test_an_arm_that_proposed_nothing_was_played_for_nothing(reward):
    policy = BanditPolicy(COSTS, reward=reward)
    play(policy, row_of(), accepted=0, drafted=0)
    state = policy._states.get(0, ArmMeans)
    assert (state.plays, state.sums) == ({"a": 1}, {"a": 0.0})


def test_a_query_starts_anew_and_a_namespace_goes_on():
    for scope, expected in (("query", "a"), ("namespace", "b")):
        policy = BanditPolicy(COSTS, reward="efficiency", beta=0.0, scope=scope)
        for accepted in (0, 3):
            play(policy, row_of(number=1), accepted)
        assert play(policy, row_of(number=2), 0) == expected
        assert play(policy, row_of(number=3, namespace="other"), 0) == "a"


def test_states_are_bounded():
    policy = BanditPolicy(COSTS, reward="efficiency", max_states=8)
    for number in range(50):
        play(policy, row_of(number=number), 1)
        policy.check_integrity()
    assert len(policy._states) == 8
    assert len(policy._asked) == 0


def test_what_economics_left_out_does_not_hold_the_bandit():
    """With trim an arm that is never worth it counts as played, or the others never came up."""
    policy = BanditPolicy(COSTS, trim=True)
    asked = set()
    for _ in range(4):
        (answer,) = policy.predict([row_of()])
        asked |= set(answer.survival)
        policy.observe([Outcome(row_of(), Choice(NONE, 0), 0, 0, 1, False)])
    assert asked == {"a", "b"}


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6), st.booleans())
def test_no_signal_can_crash_it_or_leave_an_arm_unplayed(agreement, trim):
    policy = BanditPolicy(COSTS, trim=trim)
    row = row_of(agreement=tuple(agreement))
    for _ in range(4):
        policy.predict([row])
        policy.observe([Outcome(row, Choice("a", 4), 4, 0, 1, False)])
    state = policy._states.get(0, ArmMeans)
    assert set(state.plays) <= {"a", "b"}
    assert all(np.isfinite(total) and total >= 0.0 for total in state.sums.values())
    assert state.plays.get("a", 0) >= 1
    policy.check_integrity()


def test_rows_without_an_arm_or_room_are_plain():
    policy = BanditPolicy(COSTS)
    rows = [row_of(arms=()), row_of(max_nodes=0)]
    assert [p.fixed for p in policy.predict(rows)] == [(NONE, 0)] * 2


def test_wrong_options_and_settings_are_refused():
    for wrong in ({"reward": "tv"}, {"scope": "user"}, {"beta": -1.0}, {"max_states": 0}):
        with pytest.raises(ConfigError, match="policy 'bandit'"):
            make_policy("bandit", COSTS, **wrong)
    replay = PolicySetting(("a",), 0, "f", is_replay=True)
    check_setting(make_policy("bandit", COSTS, reward="efficiency"), replay)
    with pytest.raises(ConfigError, match="reward=efficiency"):
        check_setting(make_policy("bandit", COSTS), replay)
