"""Reads features back, text by text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from whiflash.core.errors import ConfigError
from whiflash.training.data.prompts import TRAIN
from whiflash.training.features.extract import FOLDER

_MIN_ANSWER = 4


@dataclass(frozen=True, slots=True)
class TextPlace:
    """One text in a shard: rows [first, first + num_tokens)."""

    shard: Path
    first: int
    number: int
    kind: str
    split: str
    temperature: float
    num_tokens: int
    num_prompt: int

    @property
    def num_answer(self) -> int:
        return self.num_tokens - self.num_prompt


@dataclass(frozen=True, slots=True, eq=False)
class TextFeatures:
    """ids: int64 [L]; taps: [L, boundaries * h]; hidden: [L, h] after the final norm; the answer
    begins at num_prompt."""

    ids: torch.Tensor
    taps: torch.Tensor
    hidden: torch.Tensor
    num_prompt: int

    def __len__(self) -> int:
        return len(self.ids)


class FeatureStore:
    """All texts that have features in a work folder, in order of their numbers."""

    def __init__(self, work_dir: Path, device: torch.device) -> None:
        """Raises ConfigError on a damaged shard."""
        self._device = device
        self.texts: list[TextPlace] = []
        for path in sorted((work_dir / FOLDER).glob("[0-9]*.safetensors")):
            self.texts += _places(path)

    def select(self, split: str, temperature: float | None = None) -> list[TextPlace]:
        """Texts of one split that have something to learn or to measure."""
        return [
            text
            for text in self.texts
            if text.split == split
            and text.num_answer >= _MIN_ANSWER
            and (temperature is None or text.temperature == temperature)
        ]

    @property
    def num_train_tokens(self) -> int:
        """Answer tokens of the training split."""
        return sum(text.num_answer for text in self.select(TRAIN))

    def load(self, text: TextPlace) -> TextFeatures:
        """Its tensors, on the store's device."""
        rows = slice(text.first, text.first + text.num_tokens)
        with safe_open(text.shard, framework="pt", device=str(self._device)) as file:
            ids, taps, hidden = (file.get_slice(n)[rows] for n in ("ids", "taps", "hidden"))
        return TextFeatures(ids.long(), taps, hidden, text.num_prompt)

    def hidden(self, text: TextPlace) -> torch.Tensor:
        """[L, h], without its taps, which a router's texts lack."""
        with safe_open(text.shard, framework="pt", device=str(self._device)) as file:
            rows = slice(text.first, text.first + text.num_tokens)
            found: torch.Tensor = file.get_slice("hidden")[rows]
        return found

    def ids(self, text: TextPlace) -> torch.Tensor:
        """int64 [L], without the features."""
        with safe_open(text.shard, framework="pt") as file:
            found: torch.Tensor = file.get_slice("ids")[text.first : text.first + text.num_tokens]
        return found.long()


def _places(path: Path) -> list[TextPlace]:
    try:
        with safe_open(path, framework="pt") as file:
            listed = json.loads(file.metadata()["texts"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{path} is damaged; delete it and run the command again") from error
    places, first = [], 0
    for entry in listed:
        places.append(TextPlace(shard=path, first=first, **entry))
        first += entry["num_tokens"]
    return places
