"""Hidden states of the texts that a router learns from: those of the features, or its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import torch

from whiflash.target.load import LoadedTarget
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import Generation
from whiflash.training.features.extract import extract_hidden
from whiflash.training.features.store import FeatureStore

FOLDER: Final = "router"


def hidden_store(work_dir: Path) -> FeatureStore:
    """All texts of `work_dir` whose hidden states are kept, by `FeatureStore.hidden`. Raises
    ConfigError on a damaged shard."""
    store = FeatureStore(work_dir, torch.device("cpu"))
    known = {place.number for place in store.texts}
    own = FeatureStore(work_dir / FOLDER, torch.device("cpu")).texts
    store.texts += [place for place in own if place.number not in known]
    return store


def missing_hidden(work_dir: Path, texts: Sequence[Generation]) -> list[Generation]:
    """Those of `texts` whose hidden states are not kept."""
    known = {place.number for place in hidden_store(work_dir).texts}
    return [text for text in texts if text.number not in known]


def make_hidden(
    loaded: LoadedTarget,
    work_dir: Path,
    missing: Sequence[Generation],
    limit: TimeLimit,
    on_texts: Callable[[int], None],
) -> bool:
    """False if time was over before; `on_texts` hears how many were made at a time."""
    return extract_hidden(loaded.target, missing, work_dir / FOLDER, limit, on_texts)
