"""Checkpoint folders: all formats, nothing left over, nothing executed, no way out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from whiflash.core.errors import ModelError
from whiflash.models.draft.checkpoint import DraftCheckpoint, fill, read_tensors
from whiflash.models.draft.weights import hash_tensors

TENSORS = {"a.weight": torch.arange(6.0).view(2, 3), "b": torch.tensor([True, False])}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"hidden_size": 3}')
    return tmp_path


def assert_whole(folder: Path) -> None:
    found = DraftCheckpoint.read(folder)
    assert found.config["hidden_size"] == 3
    assert sorted(found.tensors) == sorted(TENSORS)
    for name, tensor in TENSORS.items():
        assert torch.equal(found.tensors[name], tensor)


def write_index(folder: Path, places: Any, name: str = "model.safetensors.index.json") -> None:
    (folder / name).write_text(json.dumps({"weight_map": places}))


@pytest.mark.parametrize("name", ["model.safetensors", "draft.safetensors"])
def test_one_safetensors_file(folder: Path, name: str) -> None:
    save_file(TENSORS, folder / name)
    assert_whole(folder)


def test_a_bin_file_and_safetensors_before_it(folder: Path) -> None:
    torch.save(TENSORS, folder / "pytorch_model.bin")
    assert_whole(folder)
    torch.save({}, folder / "other.bin")
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    save_file(TENSORS, folder / "model.safetensors")
    assert_whole(folder)


def test_shards_of_both_kinds(folder: Path) -> None:
    for number, (name, tensor) in enumerate(TENSORS.items()):
        torch.save({name: tensor}, folder / f"part-{number}.bin")
    places = {name: f"part-{number}.bin" for number, name in enumerate(TENSORS)}
    write_index(folder, places, "pytorch_model.bin.index.json")
    assert_whole(folder)
    for number, (name, tensor) in enumerate(TENSORS.items()):
        save_file({name: tensor}, folder / f"part-{number}.safetensors")
    write_index(folder, {n: p.replace(".bin", ".safetensors") for n, p in places.items()})
    assert_whole(folder)


@pytest.mark.parametrize(
    "name",
    ["../secret.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\b.bin", ".bin", "x.pkl"],
)
def test_an_index_leads_nowhere_else(folder: Path, name: str) -> None:
    write_index(folder, {"a": name})
    with pytest.raises(ModelError, match="plain names"):
        read_tensors(folder)


class Payload:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(folder: Path) -> None:
    mark = folder / "was_run"
    torch.save({"a": Payload(mark)}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="more than tensors"):
        read_tensors(folder)
    assert not mark.exists()


@pytest.mark.parametrize("content", [[torch.zeros(1)], {"a": 1}, {1: torch.zeros(1)}])
def test_a_bin_file_of_something_else_is_refused(folder: Path, content: Any) -> None:
    torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="plain table"):
        read_tensors(folder)


def test_missing_and_damaged_files_are_named(folder: Path) -> None:
    with pytest.raises(ModelError, match="no folder"):
        DraftCheckpoint.read(folder / "nowhere")
    with pytest.raises(ModelError, match=r"0 \.safetensors"):
        read_tensors(folder)
    (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0 damage")
    with pytest.raises(ModelError, match="readable"):
        read_tensors(folder)
    write_index(folder, {"a": "gone.safetensors"})
    with pytest.raises(ModelError, match="missing"):
        read_tensors(folder)
    save_file({"b": torch.zeros(1)}, folder / "gone.safetensors")
    with pytest.raises(ModelError, match="holds b"):
        read_tensors(folder)
    write_index(folder, {"a": "gone.safetensors", "b": "gone.safetensors"})
    with pytest.raises(ModelError, match="lacks tensors"):
        read_tensors(folder)
    write_index(folder, ["a"])
    with pytest.raises(ModelError, match="index"):
        read_tensors(folder)


def test_every_tensor_is_used_and_every_parameter_filled(folder: Path) -> None:
    with torch.device("meta"):
        module = nn.Linear(3, 2)
    whole = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    place = (folder, torch.float64, torch.device("cpu"))
    with pytest.raises(ModelError, match="no use for: extra"):
        fill(module, {**whole, "extra": torch.zeros(1)}, *place)
    with pytest.raises(ModelError, match="lacks the tensors bias"):
        fill(module, {"weight": whole["weight"]}, *place)
    with pytest.raises(ModelError, match=r"bias has the shape \(3,\)"):
        fill(module, {**whole, "bias": torch.zeros(3)}, *place)
    fill(module, whole, *place)
    assert module.weight.dtype == torch.float64
    assert not module.weight.requires_grad


def test_a_box_gives_each_tensor_once(folder: Path) -> None:
    save_file(TENSORS, folder / "model.safetensors")
    box = DraftCheckpoint.read(folder).box()
    assert torch.equal(box.take("b", (2,)), TENSORS["b"])
    assert box.take_optional("b") is None
    with pytest.raises(ModelError, match="lacks the tensor b"):
        box.take("b")
    with pytest.raises(ModelError, match="shape"):
        box.take("a.weight", (3, 2))


def test_the_hash_tells_weights_names_types_and_facts_apart() -> None:
    one = torch.tensor([1.0, 2.0])
    tables = [
        {"a": one},
        {"b": one},
        {"a": one.view(1, 2)},
        {"a": one.bfloat16()},
        {"a": one.view(torch.int32)},
        {"a": one.flip(0)},
        {"a": one, "b": torch.tensor(True)},
    ]
    hashes = [hash_tensors(table) for table in tables] + [hash_tensors(tables[0], (2, 4))]
    assert len(set(hashes)) == len(hashes)
    turned = {"b": torch.tensor(True), "a": one.clone()}
    assert hash_tensors(turned) == hash_tensors(tables[-1])
