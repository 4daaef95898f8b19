"""What is borrowed of the target, and whether drafter and target mean the same ids and layers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from whiflash.core.errors import ConfigError, ModelError
from whiflash.models.draft.boundaries import (
    from_layer_outputs,
    parse_boundaries,
    require_boundaries,
)
from whiflash.models.draft.target_parts import TargetParts
from whiflash.models.draft.vocabulary import DraftVocabulary, require_same_ids
from whiflash.models.linear import PackedLinear
from whiflash.models.tokenizer import HFTokenizer
from whiflash.testing.toy import write_toy

CPU = torch.device("cpu")
HERE = Path("draft")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy"))


def test_a_folder_gives_what_the_loaded_model_gives(toy: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(toy, dtype=torch.float64)
    sharded = tmp_path / "sharded"
    model.save_pretrained(sharded, max_shard_size="20KB")
    assert (sharded / "model.safetensors.index.json").is_file()
    expected = TargetParts.of_model(model, 512)
    hidden = torch.randn(3, 32, dtype=torch.float64)
    for folder in (toy, sharded):
        parts = TargetParts.of_folder(folder, torch.float64, CPU)
        assert torch.equal(parts.embedding, expected.embedding)
        assert torch.equal(parts.head(hidden), expected.head(hidden))
        for name in ("num_layers", "hidden_size", "vocab_size", "context_limit", "dtype"):
            assert getattr(parts, name) == getattr(expected, name)
    assert TargetParts.of_folder(toy, torch.float32, CPU, 99).context_limit == 99


def test_a_tied_head_is_the_embedding(toy: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "tied"
    shutil.copytree(toy, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"lm_head\.weight"):
        TargetParts.of_folder(folder, torch.float64, CPU)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    parts = TargetParts.of_folder(folder, torch.float64, CPU)
    assert torch.equal(parts.head(torch.eye(32).double()), parts.embedding.T)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="oneDNN packs weights")
def test_a_head_without_its_model_is_packed_as_the_model_s_is(toy: Path) -> None:
    """A hosted drafter took twice as long for its logits as one beside the target."""
    dense = TargetParts.of_folder(toy, torch.float64, CPU)
    parts = TargetParts.of_folder(toy, torch.float32, CPU)
    assert isinstance(parts.head, PackedLinear)
    hidden = torch.randn(7, 32, dtype=torch.float64)
    torch.testing.assert_close(parts.head(hidden.float()), dense.head(hidden).float())


def test_ids_of_a_smaller_vocabulary() -> None:
    d2t, t2d = torch.tensor([1, 2, 2]), torch.tensor([False, True, False, True, True])
    vocabulary = DraftVocabulary.of_offsets(d2t, t2d, 3, 5, HERE)
    assert vocabulary.target_ids.tolist() == [1, 3, 4]
    assert (len(vocabulary), vocabulary.is_whole) == (3, False)
    whole = DraftVocabulary.of_offsets(None, None, 5, 5, HERE)
    assert whole.is_whole
    np.testing.assert_array_equal(whole.target_ids, np.arange(5))


@pytest.mark.parametrize(
    ("d2t", "t2d", "flaw"),
    [
        ([1, 2, 1], [0, 1, 0, 1, 1], "disagree"),
        ([1, 2, 2], [1, 1, 0, 1, 1], "disagree"),
        ([1, 1, 0], [0, 1, 1, 0, 0], "disagree"),
        ([-1, 2, 2], [0, 0, 0, 1, 1], "disagree"),
        ([1, 2], [0, 1, 0, 1, 1], "do not fit"),
        ([1, 2, 2], [0, 1, 0, 1], "do not fit"),
    ],
)
def test_tables_that_contradict_each_other(d2t: list[int], t2d: list[int], flaw: str) -> None:
    marks = torch.tensor(t2d, dtype=torch.bool)
    with pytest.raises(ModelError, match=flaw):
        DraftVocabulary.of_offsets(torch.tensor(d2t), marks, 3, 5, HERE)


def test_a_small_vocabulary_needs_both_tables() -> None:
    for d2t, t2d in ((torch.tensor([1, 2, 2]), None), (None, None)):
        with pytest.raises(ModelError, match="both d2t and t2d"):
            DraftVocabulary.of_offsets(d2t, t2d, 3, 5, HERE)


def test_a_tokenizer_in_the_folder_must_be_the_target_s(toy: Path, tmp_path: Path) -> None:
    own = HFTokenizer.load(toy)
    require_same_ids(toy, 64, 64, own.fingerprint)
    require_same_ids(tmp_path, 64, 64, own.fingerprint)  # most drafters come without one
    with pytest.raises(ModelError, match="of 60 ids, this one has 64"):
        require_same_ids(toy, 60, 64, own.fingerprint)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(toy / name, tmp_path)
    table = (tmp_path / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(
        table.replace('"a": 3', '"a": 4').replace('"b": 4', '"b": 3')
    )
    assert HFTokenizer.load(tmp_path).fingerprint != own.fingerprint
    with pytest.raises(ModelError, match="not the target's"):
        require_same_ids(tmp_path, 64, 64, own.fingerprint)


def test_boundaries() -> None:
    assert from_layer_outputs([1, 3, 4]) == (2, 4, 5)
    assert require_boundaries([1, 8], 8, "x") == (1, 8)
    for flawed in ([], [0, 3], [3, 3], [4, 2], [2, 9]):
        with pytest.raises(ModelError, match="must ascend"):
            require_boundaries(flawed, 8, "x")
    assert parse_boundaries("2+18+33") == (2, 18, 33)
    for text in ("", "2,3", "2+", "a+b", "-1"):
        with pytest.raises(ConfigError, match="boundaries"):
            parse_boundaries(text)
