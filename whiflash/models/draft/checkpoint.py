"""A drafter's checkpoint folder: its configuration, and tensors that are all accounted for."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from whiflash.core.errors import ModelError
from whiflash.models.files import ModelFiles

_MAX_NAMED = 6
# What is looked for, best first: an index of shards, or one file.
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLES = ("model.safetensors", "pytorch_model.bin")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\.(safetensors|bin)")


@dataclass(frozen=True, slots=True)
class DraftCheckpoint:
    """config.json and tensors of a folder.

    config: the table of config.json. tensors: by the file's own names; whoever builds a drafter
    takes them through a `TensorBox`, so that none is left over.
    """

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor] = field(repr=False)

    @classmethod
    def read(cls, folder: Path) -> DraftCheckpoint:
        """Reads .safetensors (one file or shards) or, where there is none, .bin files, of which
        nothing but tensors is unpickled. Raises ModelError on anything missing or damaged."""
        if not folder.is_dir():
            raise ModelError(f"{folder} is no folder; give the folder of a drafter's checkpoint")
        config = ModelFiles(folder).config_table()
        return cls(folder, config, read_tensors(folder))

    def box(self) -> TensorBox:
        """A fresh account of all tensors."""
        return TensorBox(dict(self.tensors), self.folder)


class TensorBox:
    """Tensors that are taken one by one, each once; what is left must fit the body exactly."""

    def __init__(self, tensors: dict[str, torch.Tensor], folder: Path) -> None:
        self._tensors = tensors
        self._folder = folder

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """Raises ModelError if it is missing or has another shape."""
        tensor = self.take_optional(name, shape)
        if tensor is None:
            raise ModelError(f"{self._folder} lacks the tensor {name}; fetch the checkpoint again")
        return tensor

    def take_optional(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor | None:
        tensor = self._tensors.pop(name, None)
        if tensor is not None and shape is not None and tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self._folder}: {name} has the shape {tuple(tensor.shape)}, but config.json "
                f"says {shape}"
            )
        return tensor

    def take_rest(self) -> dict[str, torch.Tensor]:
        """All that is left: the body, whose names `fill` checks against the module's."""
        rest, self._tensors = self._tensors, {}
        return rest


def fill(
    module: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Gives every parameter of `module` (built on the meta device) the tensor of its name. Raises
    ModelError, naming them, on tensors without a parameter, parameters without a tensor, and
    shapes that differ."""
    wanted = {name: tuple(weight.shape) for name, weight in module.named_parameters()}
    extra = sorted(set(tensors) - set(wanted))
    if extra:
        raise ModelError(
            f"{folder} holds tensors that this drafter has no use for: {listed(extra)}; it is a "
            "variant that is not supported"
        )
    missing = sorted(set(wanted) - set(tensors))
    if missing:
        raise ModelError(f"{folder} lacks the tensors {listed(missing)}; fetch it again")
    for name, shape in wanted.items():
        if tuple(tensors[name].shape) != shape:
            raise ModelError(
                f"{folder}: {name} has the shape {tuple(tensors[name].shape)}, but config.json "
                f"says {shape}"
            )
    placed = {
        name: tensor.to(device=device, dtype=dtype).contiguous() for name, tensor in tensors.items()
    }
    module.load_state_dict(placed, strict=True, assign=True)
    module.requires_grad_(False).eval()


def listed(names: list[str]) -> str:
    """The first few of `names`, for an error's one line."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder by name. Raises ModelError."""
    for index_name, single in zip(_INDEXES, _SINGLES, strict=True):
        if (folder / index_name).is_file():
            return _read_shards(folder, index_name)
        if (folder / single).is_file():
            return read_file(folder / single)
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if len(found) == 1:
        return read_file(folder / found[0])
    raise ModelError(
        f"{folder} holds {len(found)} .safetensors files and no index; it needs one of: "
        f"{', '.join((*_SINGLES, *_INDEXES))}"
    )


def _read_shards(folder: Path, index_name: str) -> dict[str, torch.Tensor]:
    places = shard_places(folder, index_name)
    tensors: dict[str, torch.Tensor] = {}
    for file_name in sorted(set(places.values())):
        for name, tensor in read_file(folder / file_name).items():
            if places.get(name) != file_name:
                raise ModelError(f"{folder / file_name} holds {name}, which {index_name} does not")
            tensors[name] = tensor
    missing = sorted(set(places) - set(tensors))
    if missing:
        raise ModelError(f"{folder} lacks tensors that {index_name} lists: {listed(missing)}")
    return tensors


def shard_places(folder: Path, index_name: str) -> dict[str, str]:
    """Tensor name -> file name, as an index says. Raises ModelError on a file name that could
    lead out of the folder."""
    path = folder / index_name
    try:
        places = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        pairs = {str(name): str(file_name) for name, file_name in places.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is no readable index of shards") from error
    for file_name in sorted(set(pairs.values())):
        if not _FILE_NAME.fullmatch(file_name):
            raise ModelError(f"{path} names the shard {file_name!r}; only plain names are allowed")
    return pairs


def read_file(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of one .safetensors or .bin file, on the CPU. Raises ModelError."""
    if not path.is_file():
        raise ModelError(f"{path} is missing; fetch the checkpoint again")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise ModelError(f"{path} holds no readable tensors, or more than tensors") from error
    if not isinstance(loaded, dict) or not all(_is_entry(*pair) for pair in loaded.items()):
        raise ModelError(f"{path} must hold a plain table of tensors and nothing else")
    return loaded


def _is_entry(name: object, value: object) -> bool:
    return isinstance(name, str) and isinstance(value, torch.Tensor)
