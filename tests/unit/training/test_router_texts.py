"""The texts of a router: enough held-out ones, and hidden states for all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from whiflash.models.shipped import checkpoints_folder
from whiflash.target.load import LoadedTarget
from whiflash.training.clock import TimeLimit
from whiflash.training.data.prompts import HELD_OUT, TRAIN
from whiflash.training.features.store import FeatureStore
from whiflash.training.router.hidden import hidden_store, make_hidden, missing_hidden
from whiflash.training.router.texts import is_tuning, router_texts


def test_one_text_in_five_is_held_out_and_more_texts_are_the_same_and_more(work_dir: Path) -> None:
    texts = list(router_texts(work_dir, 40))
    assert len({text.number for text in texts}) == 40
    assert sum(text.split == HELD_OUT for text in texts) == 8
    assert list(router_texts(work_dir, 17)) == texts[:17]
    # All that there are, where fewer are held out than one in five.
    everything = list(router_texts(work_dir, 10_000))
    assert 0 < sum(text.split == HELD_OUT for text in everything) < len(everything) // 5
    assert len({text.number for text in everything}) == len(everything)


def test_both_splits_hold_all_temperatures_and_kinds() -> None:
    """The first texts that are shipped are greedy ones to learn from, and sampled held-out ones: a
    router would be measured on what it never saw."""
    texts = list(router_texts(checkpoints_folder() / "smollm2-135m", 250))
    for split in (TRAIN, HELD_OUT):
        some = [text for text in texts if text.split == split]
        greedy = sum(text.temperature == 0.0 for text in some)
        assert 0.35 < greedy / len(some) < 0.65, split
        assert {text.kind for text in some} == {"chat", "code", "json", "edit", "maths", "tools"}


def test_texts_that_say_when_to_stop_are_of_those_that_are_learned_from() -> None:
    chosen = [number for number in range(800) if is_tuning(number, TRAIN)]
    assert len(chosen) == 100
    assert not any(is_tuning(number, HELD_OUT) for number in range(800))


def test_hidden_states_are_made_where_no_features_have_them(
    work_dir: Path, toy_target: LoadedTarget, tmp_path: Path
) -> None:
    """In two sittings; they are those of the features, which are not made twice."""
    shutil.copytree(work_dir / "generations", tmp_path / "generations")
    texts = list(router_texts(tmp_path, 30))
    assert missing_hidden(work_dir, texts) == []
    made: list[int] = []
    for some in (texts[:10], texts):
        missing = missing_hidden(tmp_path, some)
        assert make_hidden(toy_target, tmp_path, missing, TimeLimit(None), made.append)
    assert made == [10, 20]
    assert missing_hidden(tmp_path, texts) == []
    own, features = hidden_store(tmp_path), FeatureStore(work_dir, torch.device("cpu"))
    expected = {place.number: features.load(place) for place in features.texts}
    assert {place.number for place in own.texts} == {text.number for text in texts}
    for place in own.texts:
        assert torch.equal(own.hidden(place), expected[place.number].hidden)
        assert torch.equal(own.ids(place), expected[place.number].ids)
