"""The ragged attention that runs the kernel: tasks once per forward, pointers once per layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from whiflash.models import kernel_layout as k
from whiflash.models.attention import AttentionParams
from whiflash.models.blocks import BlockSlab, block_numbers, layer_offsets, padded
from whiflash.models.launch import KERNEL_DTYPES, Launcher
from whiflash.models.ragged import Int64, RaggedRows, RowSpan
from whiflash.models.slab import BLOCK_TOKENS, CacheLayout

# Query rows (rows x grouped heads) that one task walks the keys with.
TASK_QUERIES = 48
SERIAL_ROWS = 32


class KernelBackend:
    """Row-invariant attention on CPU for bfloat16, float32 and float64."""

    name = "kernel"

    def __init__(self, layout: CacheLayout) -> None:
        if layout.dtype not in KERNEL_DTYPES or layout.device.type != "cpu":
            raise ValueError(f"no attention kernel for {layout.dtype} on {layout.device}")
        self.layout = padded(layout)
        self.block_stride = block_numbers(self.layout)
        self.launcher = Launcher(layout.dtype)
        self._offsets = layer_offsets(self.layout)
        self._is_wide = layout.dtype == torch.float64
        self._layers: dict[int, _Layer] = {}

    def new_slab(self, num_tokens: int) -> BlockSlab:
        return BlockSlab(self.layout, num_tokens)

    def start(self, rows: RaggedRows) -> KernelAttention:
        return KernelAttention(self, rows)

    def layer(
        self, layer: int, num_heads: int, value_width: int, params: AttentionParams
    ) -> _Layer:
        """The layer's own arguments, made at its first call."""
        found = self._layers.get(layer)
        if found is None or found.params is not params:
            found = self._new_layer(layer, num_heads, value_width, params)
            self._layers[layer] = found
        return found

    def _new_layer(
        self, layer: int, num_heads: int, value_width: int, params: AttentionParams
    ) -> _Layer:
        shape = self.layout.layers[layer]
        number = np.float64 if self._is_wide else np.float32
        scalars = np.array([params.scaling, params.softcap], number)
        line = np.arange(BLOCK_TOKENS, dtype=np.int64) * shape.value_width
        sinks = None
        if params.sinks is not None:
            wide = torch.float64 if self._is_wide else torch.float32
            sinks = params.sinks.detach().to(wide).contiguous()
        arguments = np.array(
            [
                num_heads, num_heads // shape.num_heads, shape.key_width, value_width,
                shape.value_width, line.ctypes.data, self._offsets[layer], params.window,
                0 if sinks is None else sinks.data_ptr(), scalars.ctypes.data,
            ],
            np.int64,
        )  # fmt: skip
        kept_alive = (scalars, line, sinks)
        return _Layer(params, arguments, shape.num_heads, num_heads // shape.num_heads, kept_alive)


@dataclass(frozen=True, slots=True)
class _Layer:
    """Arguments NUM_HEADS to SCALARS, and what they point to."""

    params: AttentionParams
    arguments: Int64
    kv_heads: int
    group: int
    kept_alive: tuple[object, ...]


class KernelAttention:
    """`RaggedAttention` of one forward over `BlockSlab` caches."""

    def __init__(self, backend: KernelBackend, rows: RaggedRows) -> None:
        self._backend = backend
        self._run = backend.launcher.run
        self._rows = rows
        self._num_threads = torch.get_num_threads()
        self._spans = _span_table(rows.spans)
        self._path_starts, self._paths = _paths(rows)
        self._tables: dict[tuple[int, int], _Tables] = {}
        self._arguments = np.zeros(k.NUM_FIELDS, np.int64)
        self._address = self._arguments.ctypes.data
        self._fields = self._arguments.data
        self._fields[k.SPANS] = self._spans.ctypes.data
        self._fields[k.PATHS] = self._paths.ctypes.data
        self._fields[k.PATH_STARTS] = self._path_starts.ctypes.data
        self._fields[k.STORED_BYTES] = backend.layout.dtype.itemsize
        self._fields[k.BLOCK_STRIDE] = backend.block_stride

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        num_heads, num_rows, _ = query.shape
        out = query.new_empty(num_rows, num_heads, value.shape[2])
        if num_rows > self._rows.num_rows:
            out[self._rows.num_rows :] = 0
        own = self._backend.layer(layer, num_heads, value.shape[2], params)
        a = self._fields
        self._arguments[k.NUM_HEADS : k.NUM_FIELDS] = own.arguments
        # What is made dense here must live until the launch is over.
        query, key, value = _dense(query), _dense(key), _dense(value)
        a[k.QUERY], (a[k.QUERY_HEAD], a[k.QUERY_ROW], _) = query.data_ptr(), query.stride()
        a[k.KEY], (a[k.KEY_HEAD], a[k.KEY_ROW], _) = key.data_ptr(), key.stride()
        a[k.VALUE], (a[k.VALUE_HEAD], a[k.VALUE_ROW], _) = value.data_ptr(), value.stride()
        a[k.OUT] = out.data_ptr()
        self._launch(own.kv_heads, own.group)
        return out

    def _launch(self, kv_heads: int, group: int) -> None:
        """All K/V rows first, then attention. Few rows are not worth waking threads for."""
        tables = self._tables.get((kv_heads, group))
        if tables is None:
            tables = _Tables(self._rows.spans, kv_heads, group)
            self._tables[kv_heads, group] = tables
        a, threads = self._fields, self._num_threads
        a[k.NEXT_WRITE], a[k.NUM_WRITES], a[k.WRITES] = 0, tables.num_writes, tables.writes_at
        a[k.NUM_TASKS] = 0
        self._run(self._address, threads if self._rows.num_rows > SERIAL_ROWS else 1)
        a[k.NEXT_TASK], a[k.NUM_TASKS], a[k.TASKS] = 0, tables.num_tasks, tables.tasks_at
        a[k.NUM_WRITES] = 0
        self._run(self._address, threads if tables.num_tasks > 1 else 1)


class _Tables:
    """The writes and tasks of a forward, for layers of one shape."""

    def __init__(self, spans: Sequence[RowSpan], kv_heads: int, group: int) -> None:
        self._writes = _writes(spans, kv_heads)
        self._tasks = _tasks(spans, kv_heads, group)
        self.num_writes, self.writes_at = len(self._writes), self._writes.ctypes.data
        self.num_tasks, self.tasks_at = len(self._tasks), self._tasks.ctypes.data


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(2) == 1 else tensor.contiguous()


def _span_table(spans: Sequence[RowSpan]) -> Int64:
    table = np.zeros((len(spans), k.SPAN_COLUMNS), np.int64)
    for line, span in zip(table, spans, strict=True):
        slab = span.cache.slab
        if not isinstance(slab, BlockSlab):
            raise ValueError("the kernel reads block slabs; take caches from new_cache")
        line[:] = slab.address, span.start, span.count, span.committed, span.is_chain
    return table


def _paths(rows: RaggedRows) -> tuple[Int64, Int64]:
    """Starts [T + 1] into, and concatenated, the paths of tree rows (own row last), by segment
    row; chain rows have none: their path is where they lie."""
    lengths = np.zeros(rows.num_rows + 1, np.int64)
    paths: list[int] = []
    for span in rows.spans:
        if not span.is_chain:
            lengths[span.start + 1 : span.start + span.count + 1] = span.depths + 1
            for row in range(span.count):
                paths.extend(span.path(row))
    return np.cumsum(lengths), np.array(paths, np.int64)


def _writes(spans: Sequence[RowSpan], kv_heads: int) -> Int64:
    tasks = [(index, head, 0, 0) for index in range(len(spans)) for head in range(kv_heads)]
    return np.array(tasks, np.int64)


def _tasks(spans: Sequence[RowSpan], kv_heads: int, group: int) -> Int64:
    """Rows [n, TASK_COLUMNS], the dearest first, so that threads end together."""
    step = max(1, TASK_QUERIES // group)
    chunks = [
        (index, low, min(low + step, span.count))
        for index, span in enumerate(spans)
        for low in range(0, span.count, step)
    ]
    chunks.sort(key=lambda c: -(c[2] - c[1]) * (spans[c[0]].committed + c[2]))
    tasks = [(index, head, low, high) for index, low, high in chunks for head in range(kv_heads)]
    return np.array(tasks, np.int64)
