"""What the attention kernel is handed and how it is addressed: fields, tables, blocks, tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from whiflash.models import tiles
from whiflash.models.tiles import BLOCK, as_pointer

# Fields of the int64 argument array; those from NUM_HEADS on belong to a layer.
(
    NEXT_WRITE, NUM_WRITES, WRITES, NEXT_TASK, NUM_TASKS, TASKS,
    SPANS, PATHS, PATH_STARTS, STORED_BYTES, BLOCK_STRIDE,
    QUERY, QUERY_HEAD, QUERY_ROW, KEY, KEY_HEAD, KEY_ROW, VALUE, VALUE_HEAD, VALUE_ROW, OUT,
    NUM_HEADS, GROUP, KEY_WIDTH, VALUE_WIDTH, VALUE_STRIDE, OFFSETS, LAYER_OFFSET, WINDOW, SINKS,
    SCALARS, NUM_FIELDS,
) = range(32)  # fmt: skip
# Columns of the span table (int64) and of the task table.
SPAN_SLAB, SPAN_START, SPAN_COUNT, SPAN_COMMITTED, SPAN_IS_CHAIN, SPAN_COLUMNS = range(6)
TASK_SPAN, TASK_HEAD, TASK_LOW, TASK_HIGH, TASK_COLUMNS = range(5)

jit: Any = njit(nogil=True, error_model="numpy", boundscheck=False)


@jit
def table(address, columns):  # type: ignore[no-untyped-def]
    return carray(as_pointer(np.int64(0), np.int64(address)), (1 << 40, columns))


@jit
def numbers(kind, address):  # type: ignore[no-untyped-def]
    return carray(as_pointer(kind, np.int64(address)), (1 << 50,))


@jit
def address_of(values, index):  # type: ignore[no-untyped-def]
    return np.int64(values.ctypes.data) + index * values.itemsize


@jit
def tile_rows(left):  # type: ignore[no-untyped-def]
    """Rows of the next tile: as many as there is code for."""
    return np.int64(6 if left >= 6 else min(3, left))


@jit
def score_tile(kind, rows, query, width, keys, out, stride):  # type: ignore[no-untyped-def]
    if rows == 1:
        tiles.score_1(kind, query, width, keys, out, stride)
    elif rows == 2:
        tiles.score_2(kind, query, width, keys, out, stride)
    elif rows == 3:
        tiles.score_3(kind, query, width, keys, out, stride)
    else:
        tiles.score_6(kind, query, width, keys, out, stride)


@jit
def mix_tile(kind, rows, weights, fades, offsets, values, num_keys, width, out):  # type: ignore[no-untyped-def]
    if rows == 1:
        tiles.mix_1(kind, weights, fades, offsets, values, num_keys, width, out)
    elif rows == 2:
        tiles.mix_2(kind, weights, fades, offsets, values, num_keys, width, out)
    elif rows == 3:
        tiles.mix_3(kind, weights, fades, offsets, values, num_keys, width, out)
    else:
        tiles.mix_6(kind, weights, fades, offsets, values, num_keys, width, out)


@jit
def block_keys(a, slab, head, block):  # type: ignore[no-untyped-def]
    """Address of one head's keys [key width, BLOCK] in a block; its values follow."""
    per_head = BLOCK * (a[KEY_WIDTH] + a[VALUE_STRIDE])
    place = block * a[BLOCK_STRIDE] + a[LAYER_OFFSET] + head * per_head
    return slab + place * a[STORED_BYTES]
