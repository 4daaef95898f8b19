"""Records of drafters as messages and back. Arrays travel as raw little-endian bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from whiflash.core.draft import DraftTree
from whiflash.core.rows import CatchUp, DraftRow, DraftSampling, Feedback
from whiflash.drafters.survival import ScoredTree
from whiflash.rpc.channels import MAX_FRAME_BYTES
from whiflash.rpc.held_ids import Ids
from whiflash.rpc.v1 import common_pb2 as pb
from whiflash.rpc.v1 import drafter_service_pb2 as drafter_pb

UNKNOWN_ID = -1
"""Stands for an id that the other end did not send and this one does not hold."""

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64,
    )
}  # fmt: skip


def ids_bytes(ids: npt.NDArray[np.int32]) -> bytes:
    return np.ascontiguousarray(ids, "<i4").tobytes()


def read_ids(data: bytes) -> Ids:
    """int32. Raises ValueError on a length that is no multiple of four."""
    return np.frombuffer(data, "<i4").astype(np.int32)


def tensor_message(tensor: torch.Tensor) -> pb.Tensor:
    """Raises ValueError for a dtype that does not travel."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise ValueError(f"a tensor of {name} cannot be sent")
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return pb.Tensor(dtype=name, shape=tensor.shape, data=data)


def read_tensor(message: pb.Tensor) -> torch.Tensor:
    """A copy of its own. Raises ValueError on an unknown dtype, or bytes that do not fit."""
    dtype = _DTYPES.get(message.dtype)
    if dtype is None:
        raise ValueError(f"a tensor of {message.dtype!r} cannot be read")
    shape = tuple(message.shape)
    if len(message.data) != int(np.prod(shape, dtype=np.int64)) * dtype.itemsize:
        raise ValueError(f"{len(message.data)} bytes are no {message.dtype} tensor of {shape}")
    if not message.data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(message.data), dtype=dtype).reshape(shape)


def tree_message(tree: DraftTree) -> pb.Tree:
    return pb.Tree(
        tokens=ids_bytes(tree.tokens),
        parents=ids_bytes(tree.parents),
        depths=ids_bytes(tree.depths),
        survival=np.ascontiguousarray(tree.survival, "<f4").tobytes(),
        source=tree.source,
        cells=ids_bytes(tree.cells) if isinstance(tree, ScoredTree) else None,
    )


def read_tree(message: pb.Tree) -> DraftTree:
    """Whether it is well-formed is for `DraftTree.flaw` to say."""
    parts = (
        read_ids(message.tokens),
        read_ids(message.parents),
        read_ids(message.depths),
        np.frombuffer(message.survival, "<f4").astype(np.float32),
        message.source,
    )
    if not message.HasField("cells"):
        return DraftTree(*parts)
    return ScoredTree(*parts, read_ids(message.cells))


def query_message(row: DraftRow, tail_start: int) -> pb.RowQuery:
    """`tail_start`: the other end holds the ids before it."""
    return pb.RowQuery(
        sequence_id=row.sequence_id,
        namespace=row.namespace,
        max_nodes=row.max_nodes,
        max_depth=row.max_depth,
        sampling=None if row.sampling is None else _sampling_message(row.sampling),
        tail_start=tail_start,
        tail_ids=ids_bytes(row.context[tail_start:]),
    )


def read_query(message: pb.RowQuery, held: Ids | None = None, origin: int = 0) -> DraftRow:
    """held: ids of positions origin, origin + 1, ...; what neither end knows is UNKNOWN_ID."""
    tail = read_ids(message.tail_ids)
    context = np.full(message.tail_start + len(tail), UNKNOWN_ID, np.int32)
    if held is not None:
        known = held[: max(message.tail_start - origin, 0)]
        context[origin : origin + len(known)] = known
    context[message.tail_start :] = tail
    sampling = _read_sampling(message.sampling) if message.HasField("sampling") else None
    return DraftRow(
        message.sequence_id, message.namespace, context, message.max_nodes, message.max_depth,
        sampling,
    )  # fmt: skip


def _sampling_message(sampling: DraftSampling) -> pb.RowSampling:
    return pb.RowSampling(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        key=sampling.key,
        index=sampling.index,
    )


def _read_sampling(message: pb.RowSampling) -> DraftSampling:
    return DraftSampling(
        message.temperature, message.top_k, message.top_p, message.min_p, message.key, message.index
    )


def catch_up_frames(
    row: CatchUp, origin: int, prefix_hash: int, max_bytes: int = MAX_FRAME_BYTES
) -> Iterator[drafter_pb.CatchUpFrame]:
    """The range in frames of at most `max_bytes` of taps and ids (one position at least). Only
    the first one has a hash: the others follow it in order."""
    count = len(row.token_ids) - 1
    width = row.fused.shape[1] * row.fused.element_size() + 4
    step = max(max_bytes // width, 1)
    for first in range(0, count, step):
        last = min(first + step, count)
        yield drafter_pb.CatchUpFrame(
            sequence_id=row.sequence_id,
            start=row.start + first,
            token_ids=ids_bytes(row.token_ids[first : last + 1]),
            fused=tensor_message(row.fused[first:last]),
            is_window_start=row.is_window_start and first == 0,
            origin=origin,
            hash=prefix_hash if first == 0 else 0,
        )


def read_catch_up(message: drafter_pb.CatchUpFrame) -> CatchUp:
    """Raises ValueError on a tensor that cannot be read."""
    return CatchUp(
        message.sequence_id, message.start, read_ids(message.token_ids),
        read_tensor(message.fused), message.is_window_start,
    )  # fmt: skip


def feedback_message(entry: Feedback) -> drafter_pb.RowFeedback:
    """Of the row's context the root alone is sent."""
    return drafter_pb.RowFeedback(
        row=query_message(entry.row, len(entry.row.context) - 1),
        tree=tree_message(entry.tree),
        followed=ids_bytes(np.asarray(entry.followed, np.int32)),
        verified=entry.verified,
    )


def read_feedback(message: drafter_pb.RowFeedback, held: Ids | None, origin: int = 0) -> Feedback:
    """`held` as in `read_query`."""
    followed: Sequence[int] = read_ids(message.followed).tolist()
    return Feedback(
        read_query(message.row, held, origin), read_tree(message.tree), tuple(followed),
        message.verified,
    )  # fmt: skip
