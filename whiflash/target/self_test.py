"""Load-time proof that ragged, chunked and tree forwards compute what the model itself computes.

`require_equal_to_eager` runs both on a slice of the real model in wide floats and refuses the
model when they differ; `require_close` compares the finished target with the plain model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from whiflash.core.errors import UnsupportedModelError
from whiflash.core.protocols import ForwardSegment, SequenceCache
from whiflash.target.slice import ModelSlice, cut
from whiflash.target.target import LocalTarget

MakeTarget = Callable[[PreTrainedModel], LocalTarget]

# Relative L2 distance of one row of logits. Wrong masks or positions give 1e-2 and more; correct
# ones measure below 1e-6, in float64 too (transformers' softmax and norms are float32 inside).
_MAX_DISTANCE = {torch.float32: 1e-3, torch.float64: 1e-5}
# The finished target against the plain model in the same dtype: correct kernels measure below
# 0.03 (bfloat16, SmolLM2); a wrong layer gives 0.3 and more.
_MAX_MEAN_DISTANCE = {
    torch.bfloat16: 0.1,
    torch.float16: 0.1,
    torch.float32: 1e-3,
    torch.float64: 1e-5,
}
PROBE_TOKENS = 140
_TREE = (-1, 0, 0, 1, 1, 2, 3, 3, 5, 0, 9, 6)


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of our forward: its whole path of ids and the logits it got."""

    path: tuple[int, ...]
    logits: torch.Tensor


def require_equal_to_eager(
    model: PreTrainedModel, text_ids: Sequence[int], make_target: MakeTarget
) -> float:
    """Compares `make_target(slice)` with the slice's own eager causal forward, row by row.

    Mixed chunks, chains, a tree, a committed tree path and single rows, windows included. Returns
    the largest relative distance. Raises UnsupportedModelError if it is too large or the model's
    code cannot be run this way.
    """
    ids = list(text_ids[:PROBE_TOKENS])
    name = model.config.model_type
    try:
        with torch.inference_mode():
            piece = cut(model, ids)
            # The target changes the model's attention, so each side has a copy of its own.
            rows = _ragged_rows(make_target(cut(model, ids).model), piece.ids_of(ids))
            worst = max(_distance(row.logits, eager) for row, eager in _with_eager(piece, rows))
    except (AttributeError, TypeError, KeyError, IndexError, RuntimeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UnsupportedModelError(
            f"{name} cannot be run on ragged rows through transformers' attention interface "
            f"({type(error).__name__}: {reason}); it needs a runner of its own"
        ) from error
    if not worst <= _MAX_DISTANCE[piece.model.dtype]:
        raise UnsupportedModelError(
            f"{name} failed the self-test: ragged logits differ from the model's own by "
            f"{worst:.1e} (relative, allowed {_MAX_DISTANCE[piece.model.dtype]:.0e}); it needs a "
            "runner of its own"
        )
    return worst


def _ragged_rows(target: LocalTarget, ids: list[int]) -> list[_Row]:
    """Three sequences in forwards of mixed chunks, then a tree beside a chain, then what follows
    the committed path."""
    first, second, third = (target.new_cache(16) for _ in range(3))
    rows: list[_Row] = []
    history: dict[int, list[int]] = {id(cache): [] for cache in (first, second, third)}

    def forward(*parts: tuple[SequenceCache, list[int], Sequence[int] | None]) -> None:
        rows.extend(_forward(target, history, parts))

    def commit(cache: SequenceCache, chunk: list[int], path: Sequence[int]) -> None:
        cache.commit(path)
        history[id(cache)].extend(chunk[row] for row in path)

    steps = ((ids[:1], ids[20:84]), (ids[1:15], ids[84:110]), (ids[15:41], ids[110:111]))
    for left, right in steps:
        forward((first, left, None), (second, right, None))
        commit(first, left, range(len(left)))
        commit(second, right, range(len(right)))
    nodes, chain = ids[41 : 41 + len(_TREE)], ids[111:120]
    forward((third, ids[60:64], None), (first, nodes, _TREE), (second, chain, None))
    commit(third, ids[60:64], range(4))
    commit(first, nodes, (0, 1, 3, 6, 11))
    commit(second, chain, range(4))
    forward((first, ids[90:93], None), (third, ids[64:65], None), (second, ids[130:140], None))
    return rows


def _forward(
    target: LocalTarget,
    history: dict[int, list[int]],
    parts: Sequence[tuple[SequenceCache, list[int], Sequence[int] | None]],
) -> list[_Row]:
    logits = target.forward(
        [
            ForwardSegment(
                cache,
                np.asarray(chunk, np.int64),
                None if parents is None else np.asarray(parents, np.int32),
                len(chunk),
            )
            for cache, chunk, parents in parts
        ]
    ).logits
    paths = [
        tuple(history[id(cache)] + [chunk[j] for j in _path(row, parents)])
        for cache, chunk, parents in parts
        for row in range(len(chunk))
    ]
    return [_Row(path, row) for path, row in zip(paths, logits, strict=True)]


def _path(row: int, parents: Sequence[int] | None) -> list[int]:
    if parents is None:
        return list(range(row + 1))
    path = []
    while row >= 0:
        path.append(row)
        row = parents[row]
    return path[::-1]


def _with_eager(piece: ModelSlice, rows: Sequence[_Row]) -> list[tuple[_Row, torch.Tensor]]:
    """Each row with the logits of the model's own forward over the row's path. One forward per
    longest path serves all its prefixes."""
    piece.model.set_attn_implementation("eager")
    done: dict[tuple[int, ...], torch.Tensor] = {}
    for row in sorted(rows, key=lambda row: -len(row.path)):
        if row.path not in done:
            ids = torch.tensor([row.path], device=piece.model.device)
            logits = piece.model(input_ids=ids, use_cache=False).logits[0]
            done.update({row.path[: i + 1]: logits[i] for i in range(len(row.path))})
    return [(row, done[row.path]) for row in rows]


def _distance(ours: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative L2 distance; infinite if either holds NaN."""
    left, right = ours.double(), expected.double()
    distance = float((left - right).norm() / right.norm().clamp_min(1e-30))
    return distance if distance == distance else float("inf")


def plain_logits(model: PreTrainedModel, text_ids: Sequence[int]) -> torch.Tensor:
    """Logits [n, V] of the untouched model over the text, for `require_close`."""
    ids = torch.tensor([list(text_ids[:PROBE_TOKENS])], device=model.device)
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0]
    return logits


def require_close(target: LocalTarget, text_ids: Sequence[int], expected: torch.Tensor) -> float:
    """Mean relative distance of the finished target from the plain model's logits.

    Raises UnsupportedModelError if it is larger than rounding explains (a wrong packed layer).
    """
    ids = np.asarray(text_ids[:PROBE_TOKENS], np.int64)
    cache = target.new_cache(len(ids))
    logits = target.forward([ForwardSegment(cache, ids, None, len(ids))]).logits
    cache.release()
    mean = float(np.mean([_distance(a, b) for a, b in zip(logits, expected, strict=True)]))
    limit = _MAX_MEAN_DISTANCE[expected.dtype]
    if not mean <= limit:
        raise UnsupportedModelError(
            f"the target failed the self-test: its logits differ from the plain model's by "
            f"{mean:.1e} (relative, allowed {limit:.0e}); try --dtype float32 and report this CPU"
        )
    return mean
