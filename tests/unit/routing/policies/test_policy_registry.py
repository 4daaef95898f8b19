"""Policies by name, and `static`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import whiflash.routing.policies as package
from whiflash.core.costs import CostCurve
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, RouteRow
from whiflash.core.signals import Signals
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import POLICIES, make_policy, policy_of
from whiflash.routing.policy_spec import PolicySpec

COSTS = CostModel(CostCurve(((1, 10.0),)))


def fixed(policy, arms, max_nodes=6):
    row = RouteRow(0, "n", Signals(0.1, 0.9), arms, {}, max_nodes=max_nodes)
    return policy.predict([row])[0].fixed


NEEDED: dict[str, dict[str, object]] = {"entropy": {"tau": 1.0}}
FULL_NAMES = {"rules": "rules:arctic"}


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"neural"}))
def test_every_policy_is_made_by_its_name(name):
    policy = make_policy(name, COSTS, **NEEDED.get(name, {}))
    assert policy.name == FULL_NAMES.get(name, name)
    policy.observe([])
    assert policy.predict([]) == []


def test_the_oracle_is_for_replay_only():
    for make in (make_policy, policy_of):
        with pytest.raises(ConfigError, match="whiflash replay rounds LOG"):
            make("oracle", COSTS)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("best", "unknown policy 'best'; policies are"),
        ("static:speed=3", "no option 'speed'; options are arm, budget"),
        ("survey:arm=a", "no option 'arm'; options are -"),
        ("static:budget=many", "budget=many: must be a whole number"),
        ("entropy:tau=nan", "tau=nan: must be a finite number"),
        ("entropy:tau=1,trim=perhaps", "trim=perhaps: must be yes or no"),
        ("static:8", "write '8' as option=value"),
        ("static:arm=a,arm=b", "the option arm twice"),
    ],
)
def test_what_a_person_wrote_wrong_is_told(text, told):
    with pytest.raises(ConfigError, match=told):
        policy_of(text, COSTS)


def test_options_of_a_person_arrive_as_what_they_are():
    policy = policy_of("static:arm=b, budget=4", COSTS)
    assert fixed(policy, (NONE, "a", "b")) == ("b", 4)
    assert policy_of("entropy:tau=0.5,trim=yes", COSTS).name == "entropy + trim"
    assert PolicySpec.parse("neural:file=/a,b/c.st,trim=no").options == {
        "file": "/a,b/c.st", "trim": "no",
    }  # fmt: skip


def test_static_arms_may_be_named_in_a_config_with_no_option():
    assert policy_of("goodput", COSTS).name == "goodput"


def test_unknown_names_and_options_list_the_valid_ones():
    with pytest.raises(
        ConfigError, match="unknown policy 'best'; policies are bandit, entropy, goodput"
    ):
        make_policy("best", COSTS)
    with pytest.raises(ConfigError, match="no option 'speed'; options are arm, budget"):
        make_policy("static", COSTS, speed=3)


def test_static_takes_its_arm_where_the_row_has_it():
    policy = make_policy("static", COSTS, arm="b", budget=4)
    assert fixed(policy, (NONE, "a", "b")) == ("b", 4)
    assert fixed(policy, (NONE, "a")) == (NONE, 0)


def test_static_by_default_takes_the_first_arm_and_all_that_fits():
    policy = make_policy("static", COSTS)
    assert fixed(policy, (NONE, "a", "b"), max_nodes=9) == ("a", 9)
    assert fixed(policy, (NONE,)) == (NONE, 0)
    assert fixed(make_policy("static", COSTS, arm=NONE), (NONE, "a")) == (NONE, 0)


def test_static_refuses_an_empty_budget():
    with pytest.raises(ConfigError, match="at least 1 node"):
        make_policy("static", COSTS, budget=0)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_docstrings_tell_the_same_story_in_the_same_order(name):
    """docs/add_policy.md promises: name, what it does, when it is neutral, parameters, example."""
    source = Path(package.__path__[0], f"{name}.py").read_text()
    told = ast.get_docstring(ast.parse(source)) or ""
    parts = [f"{name}: ", "What it does.", "When it is neutral.", "Parameters.", "Example."]
    places = [told.find(part) for part in parts]
    assert places[0] == 0
    assert -1 not in places
    assert places == sorted(places)
