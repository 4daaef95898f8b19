"""What a drafter borrows of its target: embedding, head, sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from whiflash.core.errors import ModelError
from whiflash.models.draft.checkpoint import read_tensors, shard_places
from whiflash.models.draft.layers import linear_of
from whiflash.models.files import ModelFiles

Head = Callable[[torch.Tensor], torch.Tensor]
_EMBEDDINGS = ("model.embed_tokens.weight", "model.language_model.embed_tokens.weight")
_HEADS = ("lm_head.weight", "model.lm_head.weight")
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class TargetParts:
    """The target as a drafter sees it.

    embedding: [rows, hidden_size], raw (rows >= vocab_size); head: [n, hidden_size] -> [n,
    vocab_size], applied after the drafter's own norm. tokenizer_fingerprint "" is not known.
    """

    num_layers: int
    hidden_size: int
    vocab_size: int
    context_limit: int
    embedding: torch.Tensor = field(repr=False)
    head: Head = field(repr=False)
    tokenizer_fingerprint: str = ""

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @classmethod
    def of_model(
        cls, model: PreTrainedModel, context_limit: int, tokenizer_fingerprint: str = ""
    ) -> TargetParts:
        """The modules of a model that is loaded anyway; nothing is copied."""
        config = model.config.get_text_config()
        embedding = model.get_input_embeddings().weight
        if not isinstance(embedding, torch.Tensor):
            raise ModelError("the target's embedding is no plain table; drafters cannot share it")
        return cls(
            num_layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            context_limit=context_limit,
            embedding=embedding.detach(),
            head=model.get_output_embeddings(),
            tokenizer_fingerprint=tokenizer_fingerprint,
        )

    @classmethod
    def of_folder(
        cls,
        folder: Path,
        dtype: torch.dtype,
        device: torch.device,
        context_limit: int | None = None,
        tokenizer_fingerprint: str = "",
    ) -> TargetParts:
        """Read from a target's checkpoint, for a drafter in a process without the target."""
        config = ModelFiles(folder).config_table()
        config = config.get("text_config", config)
        embedding = _first(folder, _EMBEDDINGS)
        head = _first(folder, _HEADS)
        if embedding is None or (head is None and not config.get("tie_word_embeddings")):
            raise ModelError(f"{folder} has no {_EMBEDDINGS[0]} or no {_HEADS[0]}")
        embedding = embedding.to(device=device, dtype=dtype)
        weight = embedding if head is None else head.to(device=device, dtype=dtype)
        return cls(
            num_layers=_size(config, "num_hidden_layers", folder),
            hidden_size=_size(config, "hidden_size", folder),
            vocab_size=_size(config, "vocab_size", folder),
            context_limit=context_limit or _size(config, "max_position_embeddings", folder),
            embedding=embedding,
            head=linear_of(weight),
            tokenizer_fingerprint=tokenizer_fingerprint,
        )


def _size(config: dict[str, Any], key: str, folder: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ModelError(f"{folder / 'config.json'}: {key} must be a positive count, got {value!r}")
    return value


def _first(folder: Path, names: tuple[str, ...]) -> torch.Tensor | None:
    """The first of `names` that the folder holds, read alone where the format allows it."""
    index = folder / _INDEX
    places = shard_places(folder, _INDEX) if index.is_file() else {}
    for name in names:
        file_name = places.get(name, "" if places else "model.safetensors")
        if not (folder / file_name).is_file():
            continue
        try:
            with safe_open(folder / file_name, framework="pt") as file:
                if name in file.keys():  # noqa: SIM118  (not a mapping)
                    tensor: torch.Tensor = file.get_tensor(name)
                    return tensor
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{folder / file_name} is damaged; fetch it again") from error
    if places or (folder / "model.safetensors").is_file():
        return None
    tensors = read_tensors(folder)
    return next((tensors[name] for name in names if name in tensors), None)
