"""Policies by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import get_type_hints

from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Policy
from whiflash.routing.costs import Costs
from whiflash.routing.policies.bandit import BanditPolicy
from whiflash.routing.policies.entropy import EntropyPolicy
from whiflash.routing.policies.goodput import GoodputPolicy
from whiflash.routing.policies.neural import NeuralPolicy
from whiflash.routing.policies.rules import RulesPolicy
from whiflash.routing.policies.static import StaticPolicy
from whiflash.routing.policies.survey import SurveyPolicy
from whiflash.routing.policy_spec import PolicySpec

PolicyFactory = Callable[..., Policy]

POLICIES: Mapping[str, PolicyFactory] = {
    "bandit": BanditPolicy,
    "entropy": EntropyPolicy,
    "goodput": GoodputPolicy,
    "neural": NeuralPolicy,
    "rules": RulesPolicy,
    "static": StaticPolicy,
    "survey": SurveyPolicy,
}
ORACLE = "oracle"


def make_policy(name: str, costs: Costs, **options: object) -> Policy:
    """The policy `name`. Raises ConfigError for an unknown name or option, or a wrong value."""
    factory = _factory(name)
    _check_options(name, options)
    return factory(costs, **options)


def check_policy(text: str) -> PolicySpec:
    """A policy as a person wrote it ("entropy:tau=1.2"), names and kinds of values checked.
    Raises ConfigError."""
    spec = PolicySpec.parse(text)
    _factory(spec.name)
    _check_options(spec.name, spec.options)
    spec.typed(_kinds(spec.name))
    return spec


def policy_of(text: str, costs: Costs) -> Policy:
    """The policy that a person wrote. Raises ConfigError as `make_policy`."""
    spec = check_policy(text)
    return make_policy(spec.name, costs, **spec.typed(_kinds(spec.name)))


def _factory(name: str) -> PolicyFactory:
    if name == ORACLE:
        raise ConfigError("policy 'oracle' must know the text that is still to come, so no engine "
                          "can have it; `whiflash replay rounds LOG` shows it")  # fmt: skip
    if name not in POLICIES:
        raise ConfigError(f"unknown policy {name!r}; policies are {', '.join(sorted(POLICIES))}")
    return POLICIES[name]


def _known(name: str) -> list[str]:
    parameters = inspect.signature(POLICIES[name]).parameters.values()
    return [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]


def _check_options(name: str, options: Mapping[str, object]) -> None:
    known = _known(name)
    for option in options:
        if option not in known:
            raise ConfigError(
                f"policy {name!r} has no option {option!r}; options are {', '.join(known) or '-'}"
            )


def _kinds(name: str) -> dict[str, object]:
    factory = POLICIES[name]
    return get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
