"""entropy: H > tau takes the autoregressive arm, else the block arm (WhiFlash, reconstructed)."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.costs import CostCurve
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, RouteRow
from whiflash.core.signals import Signals
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import make_policy
from whiflash.routing.setting import PolicySetting, check_setting
from whiflash.routing.tau_file import TauFile

COSTS = CostModel(CostCurve(((1, 20.0), (64, 83.0))), {"eagle3": (8.0, 0.0), "dflash": (6.0, 0.0)})


def row_of(entropy: float, arms=("eagle3", "dflash"), max_nodes: int = 8) -> RouteRow:
    return RouteRow(0, "n", Signals(entropy, 0.5), (NONE, *arms), {}, max_nodes=max_nodes)


def choice(policy, row):
    return policy.predict([row])[0].fixed


@pytest.mark.parametrize(
    ("entropy", "arm"), [(1.3, "eagle3"), (1.2, "dflash"), (0.0, "dflash"), (math.nan, "dflash")]
)
def test_strictly_above_tau_is_autoregressive(entropy, arm):
    assert choice(make_policy("entropy", COSTS, tau=1.2), row_of(entropy)) == (arm, 8)


def test_the_block_arm_is_whichever_is_there_unless_named():
    arms = ("eagle3", "ddtree", "dflash")
    assert choice(make_policy("entropy", COSTS, tau=1.0), row_of(0.0, arms[:2]))[0] == "ddtree"
    named = make_policy("entropy", COSTS, tau=1.0, below="ddtree")
    assert choice(named, row_of(0.0, arms))[0] == "ddtree"


def test_a_row_that_lost_an_arm_drafts_with_the_other_one():
    policy = make_policy("entropy", COSTS, tau=1.0)
    assert choice(policy, row_of(0.0, ("eagle3",))) == ("eagle3", 8)
    assert choice(policy, row_of(5.0, ("dflash",))) == ("dflash", 8)
    assert choice(policy, row_of(5.0, ())) == (NONE, 0)


def test_options_that_contradict_are_refused_naming_both(tmp_path):
    for options in ({}, {"tau": 1.0, "file": "x"}):
        with pytest.raises(ConfigError, match=r"tau=NATS or file=PATH, and not both"):
            make_policy("entropy", COSTS, **options)
    with pytest.raises(ConfigError, match="above= and below="):
        make_policy("entropy", COSTS, file=str(tmp_path / "x"), above="eagle3")
    with pytest.raises(ConfigError, match="both 'dflash'"):
        make_policy("entropy", COSTS, tau=1.0, above="dflash", below="dflash")


def test_an_engine_without_the_arms_is_refused():
    policy = make_policy("entropy", COSTS, tau=1.0)
    check_setting(policy, PolicySetting(("eagle3", "ddtree"), 8, "f"))
    with pytest.raises(ConfigError, match="--drafter gives retrieval; add eagle3"):
        check_setting(policy, PolicySetting(("retrieval",), 8, "f"))


def test_a_file_brings_tau_arms_and_target(tmp_path):
    file = tmp_path / "tau.json"
    TauFile(0.7, "eagle3", "ddtree", "fingerprint", {"roots": 3}).write(file)
    policy = make_policy("entropy", COSTS, file=str(file))
    arms = ("eagle3", "dflash", "ddtree")
    assert choice(policy, row_of(0.6, arms))[0] == "ddtree"
    assert choice(policy, row_of(0.8, arms))[0] == "eagle3"
    check_setting(policy, PolicySetting(arms, 8, "fingerprint"))
    with pytest.raises(ConfigError, match="another target"):
        check_setting(policy, PolicySetting(arms, 8, "other"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "other"}, "no whiflash-entropy-1 file"),
        ({"tau": math.nan}, "needs a number tau"),
        ({"tau": "1"}, "needs a number tau"),
        ({"more": 1}, "too much: more"),
        ({"above": None}, "needs a number tau"),
    ],
)
def test_other_files_are_refused(tmp_path, change, told):
    file = tmp_path / "tau.json"
    TauFile(0.7, "eagle3", "dflash", "f").write(file)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ConfigError, match=told):
        make_policy("entropy", COSTS, file=str(file))
    with pytest.raises(ConfigError, match="cannot read"):
        make_policy("entropy", COSTS, file=str(tmp_path / "none.json"))


@given(
    st.floats(allow_nan=True, allow_infinity=True),
    st.lists(st.sampled_from(["eagle3", "dflash", "retrieval"]), unique=True),
    st.integers(0, 9),
    st.booleans(),
)
def test_whatever_comes_it_answers_with_an_arm_of_the_row(entropy, arms, max_nodes, trim):
    policy = make_policy("entropy", COSTS, tau=1.0, trim=trim)
    row = row_of(entropy, tuple(arms), max_nodes)
    (answer,) = policy.predict([row])
    if trim:
        assert answer.fixed is None
        assert set(answer.survival) <= set(arms)
        assert all(len(odds) <= max_nodes for odds in answer.survival.values())
    else:
        assert answer.fixed[0] in row.arms
        assert 0 <= answer.fixed[1] <= max_nodes


def test_rule_and_trim_offers_the_rules_arm_alone():
    policy = make_policy("entropy", COSTS, tau=1.0, trim=True)
    assert policy.name == "entropy + trim"
    above, below = policy.predict([row_of(2.0), row_of(0.1)])
    assert (set(above.survival), set(below.survival)) == ({"eagle3"}, {"dflash"})
    policy.check_integrity()
