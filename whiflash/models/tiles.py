"""Building blocks of the attention kernel as numba intrinsics: scores, softmax step, weighted sum.

`kind` is a number whose type names the stored numbers (see `vectors`); addresses are int64.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from whiflash.models.vectors import I16, I32, I64, LANES, Vectors

BLOCK = 64
MAX_TILE_ROWS = 6
VECTORS = BLOCK // LANES


def _score_tile(num_rows: int) -> Any:
    @intrinsic
    def score(
        _typing: Any, kind: Any, query: Any, width: Any, keys: Any, out: Any, stride: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit_scores(Vectors(builder, signature.args[0]), num_rows, *args[1:])
            return context.get_dummy_value()

        return types.none(kind, query, width, keys, out, stride), generate

    return score


def _emit_scores(
    vec: Vectors, num_rows: int, query: Any, width: Any, keys: Any, out: Any, stride: Any
) -> None:
    """out[r * stride + j] = sum over d, in order, of query[r][d] * keys[d][j], j < BLOCK."""
    builder = vec.builder
    sums = [
        [cgutils.alloca_once(builder, vec.type) for _ in range(VECTORS)] for _ in range(num_rows)
    ]
    for slot in (slot for row in sums for slot in row):
        builder.store(vec.const(0.0), slot)
    with cgutils.for_range(builder, width) as loop:
        line = vec.behind_stored(keys, builder.mul(loop.index, I64(BLOCK)))
        lanes = [vec.load_stored(vec.behind_stored(line, v * LANES)) for v in range(VECTORS)]
        for row in range(num_rows):
            place = builder.add(builder.mul(width, I64(row)), loop.index)
            factor = vec.spread(vec.behind(query, place))
            for v in range(VECTORS):
                total = vec.fma(factor, lanes[v], builder.load(sums[row][v]))
                builder.store(total, sums[row][v])
    for row in range(num_rows):
        for v in range(VECTORS):
            place = builder.add(builder.mul(stride, I64(row)), I64(v * LANES))
            vec.store(builder.load(sums[row][v]), vec.behind(out, place))


@intrinsic
def softmax_row(
    _typing: Any, kind: Any, scores: Any, low: Any, high: Any, scale: Any, peak: Any, total: Any
) -> Any:
    """One step of the online softmax for one row and block; returns the factor for what was
    summed before. scores[BLOCK] become weights, 0 outside low..high; peak[1] is the running
    maximum, total[LANES] the running sums of weights."""
    result = types.float64 if kind == types.float64 else types.float32

    def generate(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _emit_softmax(Vectors(builder, signature.args[0]), *args[1:])

    return result(kind, scores, low, high, scale, peak, total), generate


def _emit_softmax(
    vec: Vectors, scores: Any, low: Any, high: Any, scale: Any, peak: Any, total: Any
) -> Any:
    b = vec.builder
    places = [vec.behind(scores, v * LANES) for v in range(VECTORS)]
    masked = [_masked(vec, place, v, low, high, scale) for v, place in enumerate(places)]
    best = vec.highest(vec.maximum(vec.maximum(*masked[:2]), vec.maximum(*masked[2:])))
    nothing = ir.Constant(vec.scalar, -math.inf)
    slot = vec.pointer(peak, vec.scalar)
    old = b.load(slot)
    new = b.select(b.fcmp_ordered(">", best, old), best, old)
    b.store(new, slot)
    is_empty = b.fcmp_ordered("==", new, nothing)
    base = vec.splat(b.select(is_empty, ir.Constant(vec.scalar, 0.0), new))
    weights = [vec.exp(b.fsub(x, base)) for x in masked]
    for weight, place in zip(weights, places, strict=True):
        vec.store(weight, place)
    fade = vec.exp(b.fsub(vec.splat(old), base))
    added = b.fadd(b.fadd(*weights[:2]), b.fadd(*weights[2:]))
    vec.store(vec.fma(vec.load(total), fade, added), total)
    return b.extract_element(fade, I32(0))


def _masked(vec: Vectors, place: Any, v: int, low: Any, high: Any, scale: Any) -> Any:
    b = vec.builder
    index = ir.Constant(ir.VectorType(I64, LANES), [v * LANES + i for i in range(LANES)])
    bounds = [_splat_integer(b, bound) for bound in (low, high)]
    is_seen = b.and_(b.icmp_signed(">=", index, bounds[0]), b.icmp_signed("<=", index, bounds[1]))
    scaled = b.fmul(vec.load(place), vec.splat(scale))
    return b.select(is_seen, scaled, vec.const(-math.inf))


def _splat_integer(builder: ir.IRBuilder, value: Any) -> Any:
    undefined = ir.Constant(ir.VectorType(I64, LANES), ir.Undefined)
    one = builder.insert_element(undefined, value, I32(0))
    mask = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
    return builder.shuffle_vector(one, undefined, mask)


def _value_tile(num_rows: int) -> Any:
    @intrinsic
    def mix(
        _typing: Any, kind: Any, weights: Any, fades: Any, offsets: Any, values: Any,
        num_keys: Any, width: Any, out: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vec = Vectors(builder, signature.args[0])
            wide = builder.and_(args[6], I64(-2 * LANES))
            with cgutils.for_range(builder, builder.lshr(wide, I64(5))) as loop:
                start = builder.mul(loop.index, I64(2 * LANES))
                _emit_mix(vec, num_rows, 2, start, *args[1:])
            with builder.if_then(builder.icmp_signed("<", wide, args[6])):
                _emit_mix(vec, num_rows, 1, wide, *args[1:])
            return context.get_dummy_value()

        args = (kind, weights, fades, offsets, values, num_keys, width, out)
        return types.none(*args), generate

    return mix


def _emit_mix(
    vec: Vectors, num_rows: int, num_vectors: int, start: Any, weights: Any, fades: Any,
    offsets: Any, values: Any, num_keys: Any, width: Any, out: Any,
) -> None:  # fmt: skip
    """out[r][c] = out[r][c] * fades[r] + sum over keys j, in order, of weights[r][j] *
    values[offsets[j] + c], for `num_vectors` vectors of columns from `start` on."""
    b = vec.builder
    sums = []
    for row in range(num_rows):
        fade = vec.spread(vec.behind(fades, row))
        for v in range(num_vectors):
            place = b.add(b.add(b.mul(width, I64(row)), start), I64(v * LANES))
            address = vec.behind(out, place)
            slot = cgutils.alloca_once(b, vec.type)
            b.store(b.fmul(vec.load(address), fade), slot)
            sums.append((row, v, slot, address))
    with cgutils.for_range(b, num_keys) as loop:
        offset = b.load(vec.pointer(b.add(offsets, b.mul(loop.index, I64(8))), I64))
        line = vec.behind_stored(values, b.add(offset, start))
        lanes = [vec.load_stored(vec.behind_stored(line, v * LANES)) for v in range(num_vectors)]
        for row, v, slot, _ in sums:
            place = b.add(I64(row * BLOCK), loop.index)
            factor = vec.spread(vec.behind(weights, place))
            b.store(vec.fma(factor, lanes[v], b.load(slot)), slot)
    for _, _, slot, address in sums:
        vec.store(b.load(slot), address)


@intrinsic
def fetch_add(_typing: Any, _address: Any, _amount: Any) -> Any:
    """Atomically add to the int64 at `address`; returns what it was."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], I64.as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def as_pointer(_typing: Any, kind: Any, _address: Any) -> Any:
    """The address as a C pointer to numbers of the kind's own type."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], context.get_value_type(signature.return_type))

    return types.CPointer(kind)(kind, types.int64), generate


@intrinsic
def widen(_typing: Any, kind: Any, _number: Any) -> Any:
    """A stored number as one of the computing type."""
    result = types.float32 if kind == types.uint16 else kind

    def generate(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if signature.args[0] != types.uint16:
            return args[1]
        return builder.bitcast(builder.shl(builder.zext(args[1], I32), I32(16)), ir.FloatType())

    return result(kind, kind), generate


@intrinsic
def narrow(_typing: Any, kind: Any, _number: Any) -> Any:
    """A computed number as it is stored, rounded to nearest even."""

    def generate(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if signature.args[0] != types.uint16:
            return args[1]
        bits = builder.bitcast(args[1], I32)
        odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
        rounded = builder.add(bits, builder.add(odd, I32(0x7FFF)))
        is_nan = builder.fcmp_unordered("uno", args[1], args[1])
        kept = builder.select(is_nan, I32(0x7FC00000), rounded)
        return builder.trunc(builder.lshr(kept, I32(16)), I16)

    computing = types.float32 if kind == types.uint16 else kind
    return kind(kind, computing), generate


score_1, score_2, score_3, score_6 = (_score_tile(rows) for rows in (1, 2, 3, MAX_TILE_ROWS))
mix_1, mix_2, mix_3, mix_6 = (_value_tile(rows) for rows in (1, 2, 3, MAX_TILE_ROWS))
