"""Which drafters there are: one line each. A drafter's package is imported when it is built.

The arm `none` has no drafter object: a round without a draft is the engine's plain step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Drafter
from whiflash.core.rows import NONE

if TYPE_CHECKING:
    from whiflash.trajectories.index import TrajectoryIndexes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DrafterParts:
    """What an engine offers to the drafters it builds; each takes what it needs."""

    indexes: TrajectoryIndexes


class Registry(Generic[T]):
    """Names and the factories behind them, given as "module:function"."""

    def __init__(self, kind: str, factories: Mapping[str, str]) -> None:
        self._kind = kind
        self._factories = dict(factories)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._factories))

    def build(self, name: str, parts: Any) -> T:
        """What the factory of `name` makes of `parts`. Raises ConfigError on an unknown name."""
        if name not in self._factories:
            valid = ", ".join(self.names)
            raise ConfigError(f"unknown {self._kind} {name!r}; use one of: {valid}, {NONE}")
        module, function = self._factories[name].split(":")
        made: T = getattr(import_module(module), function)(parts)
        return made


DRAFTERS: Registry[Drafter] = Registry(
    "drafter",
    {
        "retrieval": "whiflash.drafters.retrieval:build",
    },
)


def make_drafters(names: Iterable[str], indexes: TrajectoryIndexes) -> dict[str, Drafter]:
    """The drafters of the arms `names`, which leave out `none`. Raises ConfigError."""
    parts = DrafterParts(indexes)
    return {name: DRAFTERS.build(name, parts) for name in names}
