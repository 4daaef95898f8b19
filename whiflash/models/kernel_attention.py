"""The ragged attention that runs the kernel: tasks once per forward, pointers once per layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from whiflash.models import kernel as k
from whiflash.models.attention import AttentionParams
from whiflash.models.blocks import BlockSlab, block_numbers, layer_offsets, padded
from whiflash.models.launch import KERNEL_DTYPES, Launcher
from whiflash.models.ragged import Int64, RaggedRows, RowSpan
from whiflash.models.slab import BLOCK_TOKENS, CacheLayout

# Query rows (rows x grouped heads) that one task walks the keys with.
TASK_QUERIES = 48
SERIAL_ROWS = 32
_Scalars = npt.NDArray[np.float32 | np.float64]


class KernelBackend:
    """Row-invariant attention on CPU for bfloat16, float32 and float64."""

    name = "kernel"

    def __init__(self, layout: CacheLayout) -> None:
        if layout.dtype not in KERNEL_DTYPES or layout.device.type != "cpu":
            raise ValueError(f"no attention kernel for {layout.dtype} on {layout.device}")
        self.layout = padded(layout)
        self.offsets = layer_offsets(self.layout)
        self.block_stride = block_numbers(self.layout)
        self.launcher = Launcher(layout.dtype)
        self.computing = np.float64 if layout.dtype == torch.float64 else np.float32
        strides = {shape.value_width for shape in self.layout.layers}
        self.lines = {s: np.arange(BLOCK_TOKENS, dtype=np.int64) * s for s in strides}

    def new_slab(self, num_tokens: int) -> BlockSlab:
        return BlockSlab(self.layout, num_tokens)

    def start(self, rows: RaggedRows) -> KernelAttention:
        return KernelAttention(self, rows)


class KernelAttention:
    """`RaggedAttention` of one forward over `BlockSlab` caches."""

    def __init__(self, backend: KernelBackend, rows: RaggedRows) -> None:
        self._backend = backend
        self._rows = rows
        self._num_threads = torch.get_num_threads()
        self._spans = _span_table(rows.spans)
        self._path_starts, self._paths = _paths(rows)
        self._tables: dict[tuple[int, int], tuple[Int64, Int64]] = {}
        self._scalars: dict[tuple[float, float], _Scalars] = {}
        self._arguments = np.zeros(k.NUM_FIELDS, np.int64)
        self._address = self._arguments.ctypes.data
        a = self._arguments
        a[k.SPANS] = self._spans.ctypes.data
        a[k.PATHS], a[k.PATH_STARTS] = self._paths.ctypes.data, self._path_starts.ctypes.data
        a[k.STORED_BYTES] = backend.layout.dtype.itemsize
        a[k.BLOCK_STRIDE] = backend.block_stride

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        query, key, value = _dense(query), _dense(key), _dense(value)
        num_heads, num_rows, key_width = query.shape
        kv_heads, _, value_width = value.shape
        out = query.new_empty(num_rows, num_heads, value_width)
        if num_rows > self._rows.num_rows:
            out[self._rows.num_rows :] = 0
        sinks = self._sinks(params)
        a = self._arguments
        a[k.QUERY], a[k.QUERY_HEAD], a[k.QUERY_ROW] = _place(query)
        a[k.KEY], a[k.KEY_HEAD], a[k.KEY_ROW] = _place(key)
        a[k.VALUE], a[k.VALUE_HEAD], a[k.VALUE_ROW] = _place(value)
        a[k.OUT], a[k.NUM_HEADS], a[k.GROUP] = out.data_ptr(), num_heads, num_heads // kv_heads
        a[k.KEY_WIDTH], a[k.VALUE_WIDTH] = key_width, value_width
        stride = self._backend.layout.layers[layer].value_width
        a[k.VALUE_STRIDE], a[k.OFFSETS] = stride, self._backend.lines[stride].ctypes.data
        a[k.LAYER_OFFSET], a[k.WINDOW] = self._backend.offsets[layer], params.window
        a[k.SINKS] = 0 if sinks is None else sinks.data_ptr()
        a[k.SCALARS] = self._scalars_of(params).ctypes.data
        self._launch(kv_heads, num_heads // kv_heads)
        return out

    def _launch(self, kv_heads: int, group: int) -> None:
        """All K/V rows first, then attention. Few rows are not worth waking threads for."""
        writes, tasks = self._tables_of(kv_heads, group)
        a, run = self._arguments, self._backend.launcher.run
        a[k.WRITES], a[k.NUM_WRITES], a[k.NEXT_WRITE] = writes.ctypes.data, len(writes), 0
        a[k.NUM_TASKS] = 0
        run(self._address, self._num_threads if self._rows.num_rows > SERIAL_ROWS else 1)
        a[k.NUM_WRITES] = 0
        a[k.TASKS], a[k.NUM_TASKS], a[k.NEXT_TASK] = tasks.ctypes.data, len(tasks), 0
        run(self._address, self._num_threads if len(tasks) > 1 else 1)

    def _tables_of(self, kv_heads: int, group: int) -> tuple[Int64, Int64]:
        key = kv_heads, group
        if key not in self._tables:
            spans = self._rows.spans
            self._tables[key] = _writes(spans, kv_heads), _tasks(spans, kv_heads, group)
        return self._tables[key]

    def _scalars_of(self, params: AttentionParams) -> _Scalars:
        key = params.scaling, params.softcap
        if key not in self._scalars:
            self._scalars[key] = np.array(key, self._backend.computing)
        return self._scalars[key]

    def _sinks(self, params: AttentionParams) -> torch.Tensor | None:
        if params.sinks is None:
            return None
        is_wide = self._backend.computing == np.float64
        return params.sinks.to(torch.float64 if is_wide else torch.float32).contiguous()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(2) == 1 else tensor.contiguous()


def _place(tensor: torch.Tensor) -> tuple[int, int, int]:
    return tensor.data_ptr(), tensor.stride(0), tensor.stride(1)


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
