"""Features are what the target's own forward gives, whatever was run beside a text."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from whiflash.core.errors import ConfigError
from whiflash.core.protocols import ForwardSegment
from whiflash.target.load import LoadedTarget
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import read_generations
from whiflash.training.features.extract import FOLDER, extract, pending_shards
from whiflash.training.features.facts import (
    TargetEnds,
    TargetFacts,
    default_boundaries,
    require_target,
)
from whiflash.training.features.store import FeatureStore

CPU = torch.device("cpu")


def test_features_of_a_text_alone(work_dir: Path, toy_target: LoadedTarget) -> None:
    store = FeatureStore(work_dir, CPU)
    texts = {generation.number: generation for generation in read_generations(work_dir)}
    for place in store.texts[:5]:
        found = store.load(place)
        ids = np.array(texts[place.number].ids, np.int64)
        assert found.ids.tolist() == ids.tolist()
        assert found.num_prompt == len(texts[place.number].prompt)
        target = toy_target.target
        cache = target.new_cache(len(ids))
        output = target.forward([ForwardSegment(cache, ids, None, len(ids))])
        torch.testing.assert_close(found.hidden, output.hidden.float(), atol=1e-6, rtol=1e-6)


def test_the_stored_head_is_the_targets(work_dir: Path, toy_target: LoadedTarget) -> None:
    ends = TargetEnds.read(work_dir / FOLDER, CPU)
    hidden = torch.randn(3, ends.head.shape[1], dtype=torch.float64)
    with torch.inference_mode():
        logits = toy_target.target.runner.logits(hidden)
    torch.testing.assert_close(hidden @ ends.head.double().T, logits, atol=1e-4, rtol=1e-5)


def test_interrupted_features_go_on(
    work_dir: Path, toy_target: LoadedTarget, tmp_path: Path
) -> None:
    shutil.copytree(work_dir / "generations", tmp_path / "generations")
    assert not extract(toy_target, None, tmp_path, TimeLimit(0), lambda _tokens: None)
    assert len(pending_shards(tmp_path)) == 4
    assert extract(toy_target, None, tmp_path, TimeLimit(None), lambda _tokens: None)
    names = sorted(path.name for path in (tmp_path / FOLDER).glob("0*"))
    for name in names:
        assert (tmp_path / FOLDER / name).read_bytes() == (work_dir / FOLDER / name).read_bytes()
    assert len(names) == 4


def test_other_boundaries_are_refused(work_dir: Path, toy_target: LoadedTarget) -> None:
    with pytest.raises(ConfigError, match="ascend within 2 to 2"):
        TargetFacts.of_target(toy_target, (1, 2))
    assert TargetFacts.read(work_dir / FOLDER).boundaries == (2,)


def test_text_of_another_target_is_refused(work_dir: Path) -> None:
    with pytest.raises(ConfigError, match="was written by the target aa, but this one is bb"):
        require_target("bb", "aa", work_dir)


@pytest.mark.parametrize(("layers", "boundaries"), [(30, (2, 15, 27)), (7, (2, 3, 4)), (2, (2,))])
def test_default_boundaries(layers: int, boundaries: tuple[int, ...]) -> None:
    assert default_boundaries(layers) == boundaries
