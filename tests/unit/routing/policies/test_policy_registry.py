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
from whiflash.routing.policies.registry import POLICIES, make_policy

COSTS = CostModel(CostCurve(((1, 10.0),)))


def fixed(policy, arms, max_nodes=6):
    row = RouteRow(0, "n", Signals(0.1, 0.9), arms, {}, max_nodes=max_nodes)
    return policy.predict([row])[0].fixed


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_is_made_by_its_name(name):
    policy = make_policy(name, COSTS)
    assert policy.name == name
    policy.observe([])


def test_unknown_names_and_options_list_the_valid_ones():
    with pytest.raises(ConfigError, match="unknown policy 'best'; policies are goodput, static"):
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
