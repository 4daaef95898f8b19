"""The attention kernel: bit-identical rows whatever they are batched, chunked or drafted with.

Keys are walked in blocks of 64 *in position order* with an online softmax (Milakov and
Gimelshein 2018); a row's arithmetic depends only on its own path: the committed prefix, then its
ancestors laid in at their positions. A draft's scores are computed where its keys lie and then
put in position order, so nothing is copied.

Tasks are (span, KV head, row chunk); threads take them from a counter.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whiflash.models.kernel_layout import (
    GROUP,
    KEY,
    KEY_HEAD,
    KEY_ROW,
    KEY_WIDTH,
    NEXT_TASK,
    NEXT_WRITE,
    NUM_HEADS,
    NUM_TASKS,
    NUM_WRITES,
    OFFSETS,
    OUT,
    PATH_STARTS,
    PATHS,
    QUERY,
    QUERY_HEAD,
    QUERY_ROW,
    SCALARS,
    SINKS,
    SPAN_COLUMNS,
    SPAN_COMMITTED,
    SPAN_COUNT,
    SPAN_IS_CHAIN,
    SPAN_SLAB,
    SPAN_START,
    SPANS,
    STORED_BYTES,
    TASK_COLUMNS,
    TASK_HEAD,
    TASK_HIGH,
    TASK_LOW,
    TASK_SPAN,
    TASKS,
    VALUE,
    VALUE_HEAD,
    VALUE_ROW,
    VALUE_STRIDE,
    VALUE_WIDTH,
    WINDOW,
    WRITES,
    address_of,
    block_keys,
    jit,
    mix_tile,
    numbers,
    score_tile,
    table,
    tile_rows,
)
from whiflash.models.tiles import (
    BLOCK,
    MAX_TILE_ROWS,
    fetch_add,
    narrow,
    softmax_row,
    widen,
)
from whiflash.models.vectors import LANES


@jit
def _write_span(kind, a, span, head):  # type: ignore[no-untyped-def]
    """Copy the K and V of a span's rows into its slots behind the committed ones."""
    key, value = numbers(kind, a[KEY]), numbers(kind, a[VALUE])
    width = a[KEY_WIDTH]
    for row in range(span[SPAN_COUNT]):
        slot = span[SPAN_COMMITTED] + row
        column = slot % BLOCK
        block = numbers(kind, block_keys(a, span[SPAN_SLAB], head, slot // BLOCK))
        source = head * a[KEY_HEAD] + (span[SPAN_START] + row) * a[KEY_ROW]
        for d in range(width):
            block[d * BLOCK + column] = key[source + d]
        source = head * a[VALUE_HEAD] + (span[SPAN_START] + row) * a[VALUE_ROW]
        for c in range(a[VALUE_WIDTH]):
            block[BLOCK * width + column * a[VALUE_STRIDE] + c] = value[source + c]


@jit
def _load_queries(kind, a, query, start, head, num_rows):  # type: ignore[no-untyped-def]
    group, width = a[GROUP], a[KEY_WIDTH]
    stored = numbers(kind, a[QUERY])
    for row in range(num_rows):
        for g in range(group):
            source = (head * group + g) * a[QUERY_HEAD] + (start + row) * a[QUERY_ROW]
            target = (row * group + g) * width
            for d in range(width):
                query[target + d] = widen(kind, stored[source + d])


@jit
def _weigh(kind, a, state, rows, first_row, positions, block):  # type: ignore[no-untyped-def]
    """Softmax step of `rows` rows against one block; returns how many keys they need."""
    scores, fades, peak, total, _ = state
    scalars = numbers(scores[0], a[SCALARS])
    scale, cap = scalars[0], scalars[1]
    num_keys = np.int64(0)
    for i in range(rows):
        row = first_row + i
        high = positions[row] - block * BLOCK
        low = high - a[WINDOW] + 1 if a[WINDOW] > 0 else 0
        num_keys = max(num_keys, min(high + 1, BLOCK))
        if cap > 0:
            for j in range(i * BLOCK, (i + 1) * BLOCK):
                scores[j] = cap * math.tanh(scores[j] * scale / cap)
        fades[i] = softmax_row(
            kind, address_of(scores, i * BLOCK), low, high, scale if cap == 0 else scale / scale,
            address_of(peak, row), address_of(total, row * LANES),
        )  # fmt: skip
    return num_keys


@jit
def _walk(kind, a, slab, head, query, state, positions, first, last):  # type: ignore[no-untyped-def]
    """All rows against the blocks first..last, keys lying at their positions."""
    scores, fades, _, _, mixed = state
    width, value_stride = a[KEY_WIDTH], a[VALUE_STRIDE]
    num_rows = len(positions)
    for block in range(first, last + 1):
        keys = block_keys(a, slab, head, block)
        values = keys + BLOCK * width * a[STORED_BYTES]
        row = 0
        while row < num_rows:
            rows = tile_rows(num_rows - row)
            # Rows are in position order: the last of the tile sees the most.
            if positions[row + rows - 1] >= block * BLOCK:
                place = address_of(query, row * width)
                score_tile(kind, rows, place, width, keys, address_of(scores, 0), np.int64(BLOCK))
                num_keys = _weigh(kind, a, state, rows, row, positions, block)
                mix_tile(
                    kind, rows, address_of(scores, 0), address_of(fades, 0), a[OFFSETS], values,
                    num_keys, value_stride, address_of(mixed, row * value_stride),
                )  # fmt: skip
            row += rows


@jit
def _score_tail(kind, a, span, head, query, num_rows, tail, stride):  # type: ignore[no-untyped-def]
    """Scores of all rows with the slots behind the last full committed block, where they lie."""
    full = span[SPAN_COMMITTED] // BLOCK
    for block in range(stride // BLOCK):
        keys = block_keys(a, span[SPAN_SLAB], head, full + block)
        row = 0
        while row < num_rows:
            rows = tile_rows(num_rows - row)
            place = address_of(tail, row * stride + block * BLOCK)
            score_tile(
                kind, rows, address_of(query, row * a[KEY_WIDTH]), a[KEY_WIDTH], keys, place, stride
            )
            row += rows


@jit
def _lay_path(a, span, head, row, block, num_keys, slots, offsets):  # type: ignore[no-untyped-def]
    """Slots (behind the last full block) and value offsets of a tree row's keys, by position."""
    committed = span[SPAN_COMMITTED]
    paths = numbers(np.int64(0), a[PATHS])
    path = numbers(np.int64(0), a[PATH_STARTS])[span[SPAN_START] + row]
    for j in range(num_keys):
        position = block * BLOCK + j
        slot = position
        if position >= committed:
            slot = committed + paths[path + position - committed]
        slots[j] = slot - committed // BLOCK * BLOCK
        place = block_keys(a, np.int64(0), head, slot // BLOCK) // a[STORED_BYTES]
        offsets[j] = place + BLOCK * a[KEY_WIDTH] + slot % BLOCK * a[VALUE_STRIDE]


@jit
def _walk_paths(kind, a, span, task, query, state, positions, first, zero):  # type: ignore[no-untyped-def]
    """Tree rows against what lies behind the last full committed block, each along its path."""
    scores, fades, _, _, mixed = state
    head, group, value_stride = task[TASK_HEAD], a[GROUP], a[VALUE_STRIDE]
    full = span[SPAN_COMMITTED] // BLOCK
    last = (span[SPAN_COMMITTED] + span[SPAN_COUNT] - 1) // BLOCK
    stride = (last - full + 1) * BLOCK
    tail = np.full(len(positions) * stride, zero)
    _score_tail(kind, a, span, head, query, len(positions), tail, stride)
    offsets, slots = np.zeros(BLOCK, np.int64), np.zeros(BLOCK, np.int64)
    for row in range(task[TASK_HIGH] - task[TASK_LOW]):
        position = positions[row * group]
        for block in range(max(full, first), position // BLOCK + 1):
            num_keys = min(BLOCK, position - block * BLOCK + 1)
            _lay_path(a, span, head, task[TASK_LOW] + row, block, num_keys, slots, offsets)
            query_row = row * group
            while query_row < (row + 1) * group:
                rows = tile_rows((row + 1) * group - query_row)
                for i in range(rows):
                    for j in range(num_keys):
                        scores[i * BLOCK + j] = tail[(query_row + i) * stride + slots[j]]
                _weigh(kind, a, state, rows, query_row, positions, block)
                mix_tile(
                    kind, rows, address_of(scores, 0), address_of(fades, 0), address_of(offsets, 0),
                    span[SPAN_SLAB], num_keys, value_stride,
                    address_of(mixed, query_row * value_stride),
                )  # fmt: skip
                query_row += rows


@jit
def _finish(kind, a, span, task, state, zero):  # type: ignore[no-untyped-def]
    """Divide by the sums of weights (the sink's among them) and round to the stored type."""
    _, _, peak, total, mixed = state
    group, width, stride = a[GROUP], a[VALUE_WIDTH], a[VALUE_STRIDE]
    out, sinks = numbers(kind, a[OUT]), numbers(zero, a[SINKS])
    for i in range(len(peak)):
        row, query_head = task[TASK_LOW] + i // group, task[TASK_HEAD] * group + i % group
        weight = zero
        for lane in range(LANES):
            weight += total[i * LANES + lane]
        factor = zero + np.float32(1)
        if a[SINKS] != 0:
            sink = sinks[query_head]
            best = max(peak[i], sink)
            factor = np.exp(peak[i] - best)
            weight = weight * factor + np.exp(sink - best)
        factor = factor / weight
        target = ((span[SPAN_START] + row) * a[NUM_HEADS] + query_head) * width
        for c in range(width):
            out[target + c] = narrow(kind, mixed[i * stride + c] * factor)


@jit
def _attend(kind, zero, a, span, task):  # type: ignore[no-untyped-def]
    group, low, high = a[GROUP], task[TASK_LOW], task[TASK_HIGH]
    num_rows = (high - low) * group
    committed = span[SPAN_COMMITTED]
    query = np.full(num_rows * a[KEY_WIDTH], zero)
    _load_queries(kind, a, query, span[SPAN_START] + low, task[TASK_HEAD], high - low)
    positions = np.empty(num_rows, np.int64)
    path_starts = numbers(np.int64(0), a[PATH_STARTS])
    for i in range(num_rows):
        row = low + i // group
        depth = row
        if span[SPAN_IS_CHAIN] == 0:
            place = span[SPAN_START] + row
            depth = path_starts[place + 1] - path_starts[place] - 1
        positions[i] = committed + depth
    state = (
        np.full(MAX_TILE_ROWS * BLOCK, zero), np.full(MAX_TILE_ROWS, zero),
        np.full(num_rows, zero - np.float32(np.inf)), np.full(num_rows * LANES, zero),
        np.full(num_rows * a[VALUE_STRIDE], zero),
    )  # fmt: skip
    first = np.int64(0)
    if a[WINDOW] > 0:
        lowest = positions[0] if span[SPAN_IS_CHAIN] != 0 else committed
        first = max(0, lowest - a[WINDOW] + 1) // BLOCK
    is_chain = span[SPAN_IS_CHAIN] != 0
    last = positions[num_rows - 1] // BLOCK if is_chain else committed // BLOCK - 1
    _walk(kind, a, span[SPAN_SLAB], task[TASK_HEAD], query, state, positions, first, last)
    if not is_chain:
        _walk_paths(kind, a, span, task, query, state, positions, first, zero)
    _finish(kind, a, span, task, state, zero)


@jit
def _run(kind, zero, address):  # type: ignore[no-untyped-def]
    """What each thread does: take writes, then tasks, until there are none. One launch has
    either writes or tasks, as attention may read any row that is written."""
    a = numbers(np.int64(0), address)
    spans, tasks = table(a[SPANS], SPAN_COLUMNS), table(a[TASKS], TASK_COLUMNS)
    index = fetch_add(address + NEXT_WRITE * 8, 1)
    while index < a[NUM_WRITES]:
        write = table(a[WRITES], TASK_COLUMNS)[index]
        _write_span(kind, a, spans[write[TASK_SPAN]], write[TASK_HEAD])
        index = fetch_add(address + NEXT_WRITE * 8, 1)
    index = fetch_add(address + NEXT_TASK * 8, 1)
    while index < a[NUM_TASKS]:
        _attend(kind, zero, a, spans[tasks[index, TASK_SPAN]], tasks[index])
        index = fetch_add(address + NEXT_TASK * 8, 1)


def entry(kind: Any, zero: Any, stamp: str) -> Any:
    """The function that each thread runs, for a stored type (`kind`, see `tiles`) and a zero of
    the computing type. `stamp` names the version of the source in numba's cache."""

    def run(address):  # type: ignore[no-untyped-def]
        if len(stamp) > 0:
            _run(kind, zero, address)

    return run
