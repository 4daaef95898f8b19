"""Which drafters there are: one line each. A drafter's package is imported when it is built.

The arm `none` has no drafter object: a round without a draft is the engine's plain step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Drafter
from whiflash.core.rows import NONE
from whiflash.drafters.spec import DrafterSpec

if TYPE_CHECKING:
    from whiflash.models.draft.target_parts import TargetParts
    from whiflash.trajectories.index import TrajectoryIndexes


@dataclass(frozen=True, slots=True)
class DrafterParts:
    """What an engine offers to the drafters it builds; each takes what it needs.

    fetch: folder of a checkpoint given as a folder or a hub name. Raises ModelError.
    shipped: folders of the checkpoints that come with WhiFlash for this target, by kind.
    """

    indexes: TrajectoryIndexes
    target: TargetParts
    fetch: Callable[[str], Path]
    shipped: Mapping[str, Path] = field(default_factory=dict)

    def folder(self, spec: DrafterSpec) -> Path:
        """Where the checkpoint of `spec` lies; the shipped one if it names none. Raises
        ConfigError where none is shipped."""
        if spec.place:
            return self.fetch(spec.place)
        if spec.kind not in self.shipped:
            raise ConfigError(
                f"drafter {spec.kind} needs a checkpoint, and none is shipped for this target; "
                f"write {spec.kind}:FOLDER or {spec.kind}:HUB_NAME"
            )
        return self.shipped[spec.kind]


class DrafterRegistry:
    """Names and the factories behind them, given as "module:function", which take a DrafterSpec
    and DrafterParts."""

    def __init__(self, factories: Mapping[str, str]) -> None:
        self._factories = dict(factories)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._factories))

    def check(self, spec: DrafterSpec) -> None:
        """Raises ConfigError on an unknown kind."""
        if spec.kind not in self._factories:
            valid = ", ".join((NONE, *self.names))
            raise ConfigError(f"unknown drafter {spec.kind!r}; use one of: {valid}")

    def build(self, spec: DrafterSpec, parts: DrafterParts) -> Drafter:
        """What the factory of the spec's kind makes. Raises ConfigError or ModelError."""
        self.check(spec)
        module, function = self._factories[spec.kind].split(":")
        made: Drafter = getattr(import_module(module), function)(spec, parts)
        return made


DRAFTERS = DrafterRegistry(
    {
        "ddtree": "whiflash.drafters.ddtree:build",
        "dflash": "whiflash.drafters.dflash:build",
        "eagle3": "whiflash.drafters.eagle3:build",
        "retrieval": "whiflash.drafters.retrieval:build",
    }
)


def parse_specs(names: Iterable[str]) -> list[DrafterSpec]:
    """Specs of the drafters that a configuration names, before anything is loaded. Raises
    ConfigError on an unknown kind or one that is named twice."""
    specs = [DrafterSpec.parse(name) for name in names]
    kinds = [spec.kind for spec in specs]
    for spec in specs:
        DRAFTERS.check(spec)
        if kinds.count(spec.kind) > 1:
            raise ConfigError(f"drafter {spec.kind} is named twice; an arm has one setting")
    return specs


def make_drafters(specs: Iterable[DrafterSpec], parts: DrafterParts) -> dict[str, Drafter]:
    """The drafters of `specs` by arm. Raises ConfigError or ModelError."""
    return {spec.kind: DRAFTERS.build(spec, parts) for spec in specs}
