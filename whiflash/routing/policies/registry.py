"""Policies by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Policy
from whiflash.routing.costs import Costs
from whiflash.routing.policies.goodput import GoodputPolicy
from whiflash.routing.policies.static import StaticPolicy

PolicyFactory = Callable[..., Policy]

POLICIES: Mapping[str, PolicyFactory] = {
    "goodput": GoodputPolicy,
    "static": StaticPolicy,
}


def make_policy(name: str, costs: Costs, **options: object) -> Policy:
    """The policy `name`. Raises ConfigError for an unknown name or option, or a wrong value."""
    factory = POLICIES.get(name)
    if factory is None:
        raise ConfigError(f"unknown policy {name!r}; policies are {', '.join(sorted(POLICIES))}")
    known = [p.name for p in inspect.signature(factory).parameters.values()
             if p.kind is inspect.Parameter.KEYWORD_ONLY]  # fmt: skip
    for option in options:
        if option not in known:
            raise ConfigError(
                f"policy {name!r} has no option {option!r}; options are {', '.join(known)}"
            )
    return factory(costs, **options)
