"""One line a drafter; an unknown name says which ones there are."""

from __future__ import annotations

import pytest

from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Drafter
from whiflash.drafters.registry import DRAFTERS, Registry, make_drafters
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.memory_log import MemoryLog


def test_every_registered_drafter_can_be_built_and_goes_by_its_name() -> None:
    with TrajectoryIndexes(MemoryLog()) as indexes:
        made = make_drafters(DRAFTERS.names, indexes)
    assert list(made) == list(DRAFTERS.names)
    for name, drafter in made.items():
        assert isinstance(drafter, Drafter)
        assert drafter.name == name
        drafter.check_integrity()


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown drafter 'eagle9'; .*: .*retrieval.*none"):
        DRAFTERS.build("eagle9", None)


def test_one_line_is_enough() -> None:
    registry: Registry[object] = Registry("thing", {"counter": "collections:Counter"})
    assert registry.names == ("counter",)
    assert registry.build("counter", "aab") == {"a": 2, "b": 1}
