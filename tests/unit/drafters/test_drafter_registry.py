"""One line a drafter; what cannot be built says what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from whiflash.core.errors import ConfigError, ModelError
from whiflash.core.protocols import Drafter, TapDrafter
from whiflash.drafters.registry import DRAFTERS, DrafterParts, make_drafters, parse_specs
from whiflash.models.draft.target_parts import TargetParts
from whiflash.models.sources import resolve_drafter
from whiflash.testing.toy import CONTEXT_LIMIT, toy_model
from whiflash.testing.toy_drafters import write_toy_dflash, write_toy_eagle3
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.memory_log import MemoryLog


@pytest.fixture
def parts() -> Iterator[DrafterParts]:
    with TrajectoryIndexes(MemoryLog()) as indexes:
        yield DrafterParts(
            indexes, TargetParts.of_model(toy_model(), CONTEXT_LIMIT), resolve_drafter
        )


def test_every_registered_drafter_can_be_built_and_goes_by_its_name(
    tmp_path: Path, parts: DrafterParts
) -> None:
    eagle3, dflash = write_toy_eagle3(tmp_path / "e"), write_toy_dflash(tmp_path / "d")
    names = (f"ddtree:{dflash}", f"dflash:{dflash}", f"eagle3:{eagle3},boundaries=1+2", "retrieval")
    made = make_drafters(parse_specs(names), parts)
    assert tuple(made) == DRAFTERS.names
    for name, drafter in made.items():
        assert isinstance(drafter, Drafter)
        assert isinstance(drafter, TapDrafter) == (name != "retrieval")
        assert drafter.name == name
        drafter.check_integrity()


def test_a_shipped_checkpoint_needs_no_folder(tmp_path: Path, parts: DrafterParts) -> None:
    dflash = write_toy_dflash(tmp_path / "d")
    known = replace(parts, shipped={"dflash": dflash})
    made = make_drafters(parse_specs(["dflash,block=3"]), known)
    assert made["dflash"].name == "dflash"


def test_an_unknown_kind_lists_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown drafter 'eagle9'; .*: none, .*retrieval"):
        parse_specs(["eagle9:folder"])


def test_an_arm_has_one_setting() -> None:
    with pytest.raises(ConfigError, match="eagle3 is named twice"):
        parse_specs(["eagle3:a", "retrieval", "eagle3:b,tree=chain"])


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("eagle3", ConfigError, "none is shipped for this target; write eagle3:FOLDER"),
        ("dflash:nowhere-at-all", ModelError, "unknown drafter checkpoint 'nowhere-at-all'"),
        ("retrieval:folder", ConfigError, "takes no folder"),
        ("retrieval,depth=2", ConfigError, "takes no folder and no options"),
        ("eagle3,tree=chain", ConfigError, "none is shipped for this target"),
    ],
)
def test_what_cannot_be_built_is_refused_in_words(
    name: str, error: type[Exception], message: str, parts: DrafterParts
) -> None:
    with pytest.raises(error, match=message):
        make_drafters(parse_specs([name]), parts)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path, parts: DrafterParts) -> None:
    with pytest.raises(ModelError, match="holds no drafter"):
        make_drafters(parse_specs([f"ddtree:{tmp_path}"]), parts)
