"""The survey: what the log says of every root is what the arms' drafts are worth along the text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from whiflash.config import EngineConfig
from whiflash.testing.toy_drafters import write_toy_dflash, write_toy_eagle3
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import Generation, read_generations
from whiflash.training.data.prompts import training_prompt
from whiflash.training.features.store import FeatureStore
from whiflash.training.router.labels import router_labels
from whiflash.training.router.survey import Survey

DATA_SEED = 1
NUM_TEXTS = 12


def _settings(toy_folder: Path, folder: Path) -> EngineConfig:
    drafters = (
        f"eagle3:{write_toy_eagle3(folder / 'e')},tree=chain,boundaries=1+2",
        f"dflash:{write_toy_dflash(folder / 'd')}",
    )
    return EngineConfig(
        model=str(toy_folder), dtype="float64", memory=2**26, drafters=drafters, max_batch=4
    )


def _seed(number: int) -> int:
    return training_prompt(number, DATA_SEED).seed


def _texts(work_dir: Path) -> list[Generation]:
    return [g for g, _ in zip(read_generations(work_dir), range(NUM_TEXTS), strict=False)]


def test_every_root_has_its_hidden_state_and_both_lengths(
    work_dir: Path, toy_folder: Path, tmp_path: Path
) -> None:
    """In two sittings. At the root of every position stands the state it was chosen from."""
    survey, settings = Survey(tmp_path / "router", {"target": "t"}), _settings(toy_folder, tmp_path)
    texts = _texts(work_dir)
    assert survey.run(settings, texts[:5], _seed, TimeLimit(None), lambda: None)
    assert survey.run(settings, texts, _seed, TimeLimit(None), lambda: None)
    assert survey.done() == {text.number for text in texts}
    store = FeatureStore(work_dir, torch.device("cpu"))
    labels = router_labels(survey, store, "eagle3", "dflash")
    expected = sum(max(len(text.answer) - 16 - 1, 0) for text in texts)
    assert len(labels.gains) == pytest.approx(expected, abs=2 * NUM_TEXTS)
    assert (labels.lengths >= 1).all()
    assert len(set(labels.lengths[:, 0].tolist())) > 1
    # The first root of the first text with any: the state behind its prompt.
    first = next(text for text in texts if len(text.answer) > 18)
    place = next(p for p in store.texts if p.number == first.number)
    features = store.load(place)
    distances = (features.hidden.float()[:, None] - labels.hidden[None, :1]).abs().amax(-1)
    assert int(distances[:, 0].argmin()) >= features.num_prompt - 1
    assert float(distances.min()) == 0.0


def test_texts_that_the_target_does_not_write_again_teach_nothing(
    work_dir: Path, toy_folder: Path, tmp_path: Path
) -> None:
    """As happens where rows are not bitwise; the texts behind it keep their own rounds."""
    text, *others = [one for one in _texts(work_dir) if len(one.answer) > 20][:3]
    other = replace(text, answer=(*text.answer[:-1], (text.answer[-1] + 1) % 60))
    survey, settings = Survey(tmp_path / "router", {"target": "t"}), _settings(toy_folder, tmp_path)
    assert survey.run(settings, [other, *others], _seed, TimeLimit(None), lambda: None)
    assert survey.num_differing == 1
    turns = dict(survey.turns())
    assert set(turns) == {one.number for one in others}
    for one in others:
        assert turns[one.number].last == len(one.ids) - 1
