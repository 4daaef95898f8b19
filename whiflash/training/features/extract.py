"""Runs the target over its own text once more and keeps what drafters read and learn from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save

from whiflash.core.protocols import ForwardSegment
from whiflash.models.ragged import RaggedRows
from whiflash.models.taps import TapCapture
from whiflash.target.load import LoadedTarget
from whiflash.target.target import LocalTarget
from whiflash.training.clock import TimeLimit
from whiflash.training.data import generations as g
from whiflash.training.data.shards import read_shard
from whiflash.training.features.facts import TargetEnds, TargetFacts
from whiflash.training.files import write_whole

FOLDER: Final = "features"
Ids = npt.NDArray[np.int64]
MAX_TOKENS: Final = 1024
"""Longer texts are cut: a drafter's own context matters less and less."""
_ROWS: Final = 2048
_SHARD_TEXTS: Final = 64


def pending_shards(work_dir: Path) -> list[Path]:
    """Complete shards of generations that have no features yet."""
    texts = sorted((work_dir / g.FOLDER).glob("*.jsonl.zst"))
    return [path for path in texts if not feature_path(work_dir, path).is_file()]


def feature_path(work_dir: Path, text_shard: Path) -> Path:
    """Where the features of a shard of generations lie."""
    return work_dir / FOLDER / f"{text_shard.name.split('.')[0]}.safetensors"


def extract(
    loaded: LoadedTarget,
    boundaries: tuple[int, ...] | None,
    work_dir: Path,
    limit: TimeLimit,
    on_shard: Callable[[int], None],
) -> bool:
    """Makes what is missing; False if time was over before. `on_shard` hears of each shard's
    number of tokens. Raises ConfigError on other boundaries than those the folder has."""
    facts = TargetFacts.of_target(loaded, boundaries)
    facts.write(work_dir / FOLDER)
    TargetEnds.of_target(loaded).write(work_dir / FOLDER)
    for path in pending_shards(work_dir):
        if limit.is_over:
            return False
        found = [g.Generation.of_record(record) for record in read_shard(path)]
        texts = [text for text in found if text.answer]
        write_whole(feature_path(work_dir, path), _shard(loaded.target, facts.boundaries, texts))
        on_shard(sum(len(text.ids[:MAX_TOKENS]) for text in texts))
    return True


def extract_hidden(
    target: LocalTarget,
    texts: Sequence[g.Generation],
    work_dir: Path,
    limit: TimeLimit,
    on_texts: Callable[[int], None],
) -> bool:
    """Hidden states without taps, in shards behind those that `work_dir`/features has; False if
    time was over before. `on_texts` hears of each shard's number of texts."""
    folder = work_dir / FOLDER
    number = len(list(folder.glob("[0-9]*.safetensors")))
    for first in range(0, len(texts), _SHARD_TEXTS):
        if limit.is_over:
            return False
        some = texts[first : first + _SHARD_TEXTS]
        write_whole(folder / f"{number:05d}.safetensors", _shard(target, (), some))
        number += 1
        on_texts(len(some))
    return True


def _shard(
    target: LocalTarget, boundaries: tuple[int, ...], texts: Sequence[g.Generation]
) -> bytes:
    """A safetensors file. ids: int32 [T]; taps: [T, boundaries * h], left out where there is no
    boundary; hidden: [T, h], after the final norm. Its metadata `texts` lists the texts in
    order."""
    ids = [np.array(text.ids[:MAX_TOKENS], np.int64) for text in texts]
    taps, hidden = [], []
    for batch in _batches(ids):
        own_taps, own_hidden = _forward(target, boundaries, batch)
        taps.append(_stored(own_taps))
        hidden.append(_stored(own_hidden))
    listed = [
        {"number": t.number, "kind": t.kind, "split": t.split, "temperature": t.temperature,
         "num_tokens": len(own), "num_prompt": min(len(t.prompt), len(own))}
        for t, own in zip(texts, ids, strict=True)
    ]  # fmt: skip
    tensors = {
        "ids": torch.from_numpy(np.concatenate([*ids, np.zeros(0, np.int64)]).astype(np.int32)),
        "hidden": torch.cat(hidden) if hidden else torch.zeros(0, 1),
    }
    if boundaries:
        tensors["taps"] = torch.cat(taps) if taps else torch.zeros(0, 1)
    return save(tensors, {"texts": json.dumps(listed)})


def _batches(ids: Sequence[Ids]) -> Iterator[list[Ids]]:
    batch: list[Ids] = []
    for own in ids:
        if batch and sum(map(len, batch)) + len(own) > _ROWS:
            yield batch
            batch = []
        batch.append(own)
    if batch:
        yield batch


def _forward(
    target: LocalTarget,
    boundaries: tuple[int, ...],
    batch: Sequence[Ids],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Taps [T, boundaries * h] and hidden states [T, h] of all texts, one after the other."""
    segments = [ForwardSegment(target.new_cache(len(ids)), ids) for ids in batch]
    rows = RaggedRows.pack(segments, target.min_rows)
    for span in rows.spans:
        span.cache.reserve(span.count)
    capture = TapCapture(boundaries)
    device = target.runner.device
    with torch.inference_mode():
        hidden = target.runner.hidden(
            torch.from_numpy(rows.token_ids).to(device),
            torch.from_numpy(rows.positions).to(device),
            target.backend.start(rows),
            capture,
        )
        count = sum(len(ids) for ids in batch)
        taps = capture.at(boundaries)[:count].clone() if boundaries else hidden.new_zeros(count, 0)
        found = taps, hidden[:count].clone()
    for segment in segments:
        segment.cache.release()
    return found


def _stored(values: torch.Tensor) -> torch.Tensor:
    """On the CPU, in bf16 or float32."""
    placed = values.cpu()
    return placed if placed.dtype == torch.bfloat16 else placed.float()
