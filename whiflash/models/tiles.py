"""Vector building blocks of the attention kernel, written as LLVM vector code.

They are numba intrinsics because their arithmetic must not depend on what an auto-vectoriser
makes of a loop: each lane's operations and their order are fixed here, whatever tile a row is in.
Addresses are int64. `kind` is a scalar that names the stored type: uint16 is bfloat16, else the
type itself; the arithmetic is float64 for float64 and float32 for the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 64
LANES = 16
MAX_TILE_ROWS = 6
VECTORS = BLOCK // LANES
_I64, _I32, _I16 = ir.IntType(64), ir.IntType(32), ir.IntType(16)
_LN2_HIGH = {32: 0.693359375, 64: 6.93145751953125e-1}
_LN2_LOW = {32: -2.12194440e-4, 64: 1.42860682030941723212e-6}
_EXP_DEGREE = {32: 7, 64: 13}
_EXP_FLOOR = {32: -86.0, 64: -700.0}


class _Vectors:
    """Emits operations on LANES numbers of the computing type."""

    def __init__(self, builder: ir.IRBuilder, kind: types.Type) -> None:
        self.builder = builder
        self.kind = kind
        self.bits = 64 if kind == types.float64 else 32
        self.scalar = ir.DoubleType() if self.bits == 64 else ir.FloatType()
        self.type = ir.VectorType(self.scalar, LANES)

    def const(self, value: float) -> ir.Constant:
        return ir.Constant(self.type, [value] * LANES)

    def pointer(self, address: Any, kind: ir.Type) -> Any:
        return self.builder.inttoptr(address, kind.as_pointer())

    def load(self, address: Any) -> Any:
        return self.builder.load(self.pointer(address, self.type), align=4)

    def store(self, value: Any, address: Any) -> None:
        self.builder.store(value, self.pointer(address, self.type), align=4)

    def load_stored(self, address: Any) -> Any:
        """LANES numbers of the stored type, widened."""
        if self.kind != types.uint16:
            return self.load(address)
        b = self.builder
        raw = b.load(self.pointer(address, ir.VectorType(_I16, LANES)), align=2)
        wide = b.zext(raw, ir.VectorType(_I32, LANES))
        sixteen = ir.Constant(wide.type, [16] * LANES)
        return b.bitcast(b.shl(wide, sixteen), self.type)

    def behind(self, address: Any, count: Any) -> Any:
        """Address of the `count`-th number of the computing type behind `address`."""
        return self._offset(address, count, self.bits // 8)

    def behind_stored(self, address: Any, count: Any) -> Any:
        return self._offset(address, count, 2 if self.kind == types.uint16 else self.bits // 8)

    def _offset(self, address: Any, count: Any, size: int) -> Any:
        number = _I64(count) if isinstance(count, int) else count
        return self.builder.add(address, self.builder.mul(number, _I64(size)))

    def spread(self, address: Any) -> Any:
        """The number at `address` in all lanes."""
        value = self.builder.load(self.pointer(address, self.scalar), align=4)
        return self.splat(value)

    def splat(self, value: Any) -> Any:
        one = self.builder.insert_element(ir.Constant(self.type, ir.Undefined), value, _I32(0))
        mask = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, ir.Constant(self.type, ir.Undefined), mask)

    def call(self, name: str, result: ir.Type, arguments: Sequence[Any]) -> Any:
        kinds = [argument.type for argument in arguments]
        module = self.builder.module
        function = cgutils.get_or_insert_function(module, ir.FunctionType(result, kinds), name)
        return self.builder.call(function, arguments)

    @property
    def suffix(self) -> str:
        return f"v{LANES}f{self.bits}"

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.call(f"llvm.fma.{self.suffix}", self.type, [a, b, c])

    def maximum(self, a: Any, b: Any) -> Any:
        return self.call(f"llvm.maxnum.{self.suffix}", self.type, [a, b])

    def highest(self, a: Any) -> Any:
        return self.call(f"llvm.vector.reduce.fmax.{self.suffix}", self.scalar, [a])

    def exp(self, x: Any) -> Any:
        """e^x for x <= 0 by its Taylor polynomial after taking out powers of two; exactly 0
        below the floor, so that a masked key has weight 0."""
        b, bits = self.builder, self.bits
        floor = self.const(_EXP_FLOOR[bits])
        is_zero = b.fcmp_ordered("<", x, floor)
        x = self.maximum(x, floor)
        turns = self.call(
            f"llvm.rint.{self.suffix}", self.type, [b.fmul(x, self.const(1 / math.log(2)))]
        )
        rest = self.fma(turns, self.const(-_LN2_HIGH[bits]), x)
        rest = self.fma(turns, self.const(-_LN2_LOW[bits]), rest)
        degree = _EXP_DEGREE[bits]
        power = self.const(1 / math.factorial(degree))
        for term in range(degree - 1, -1, -1):
            power = self.fma(power, rest, self.const(1 / math.factorial(term)))
        integers = ir.VectorType(ir.IntType(bits), LANES)
        mantissa = ir.Constant(integers, [23 if bits == 32 else 52] * LANES)
        exponent = b.shl(b.fptosi(turns, integers), mantissa)
        scaled = b.bitcast(b.add(b.bitcast(power, integers), exponent), self.type)
        return b.select(is_zero, self.const(0.0), scaled)


def _score_tile(num_rows: int) -> Any:
    @intrinsic
    def score(
        _typing: Any, kind: Any, query: Any, width: Any, keys: Any, out: Any, stride: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit_scores(_Vectors(builder, signature.args[0]), num_rows, *args[1:])
            return context.get_dummy_value()

        return types.none(kind, query, width, keys, out, stride), generate

    return score


def _emit_scores(
    vec: _Vectors, num_rows: int, query: Any, width: Any, keys: Any, out: Any, stride: Any
) -> None:
    """out[r * stride + j] = sum over d, in order, of query[r][d] * keys[d][j], j < BLOCK."""
    builder = vec.builder
    sums = [
        [cgutils.alloca_once(builder, vec.type) for _ in range(VECTORS)] for _ in range(num_rows)
    ]
    for slot in (slot for row in sums for slot in row):
        builder.store(vec.const(0.0), slot)
    with cgutils.for_range(builder, width) as loop:
        line = vec.behind_stored(keys, builder.mul(loop.index, _I64(BLOCK)))
        lanes = [vec.load_stored(vec.behind_stored(line, v * LANES)) for v in range(VECTORS)]
        for row in range(num_rows):
            place = builder.add(builder.mul(width, _I64(row)), loop.index)
            factor = vec.spread(vec.behind(query, place))
            for v in range(VECTORS):
                total = vec.fma(factor, lanes[v], builder.load(sums[row][v]))
                builder.store(total, sums[row][v])
    for row in range(num_rows):
        for v in range(VECTORS):
            place = builder.add(builder.mul(stride, _I64(row)), _I64(v * LANES))
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
        return _emit_softmax(_Vectors(builder, signature.args[0]), *args[1:])

    return result(kind, scores, low, high, scale, peak, total), generate


def _emit_softmax(
    vec: _Vectors, scores: Any, low: Any, high: Any, scale: Any, peak: Any, total: Any
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
    return b.extract_element(fade, _I32(0))


def _masked(vec: _Vectors, place: Any, v: int, low: Any, high: Any, scale: Any) -> Any:
    b = vec.builder
    index = ir.Constant(ir.VectorType(_I64, LANES), [v * LANES + i for i in range(LANES)])
    bounds = [_splat_integer(b, bound) for bound in (low, high)]
    is_seen = b.and_(b.icmp_signed(">=", index, bounds[0]), b.icmp_signed("<=", index, bounds[1]))
    scaled = b.fmul(vec.load(place), vec.splat(scale))
    return b.select(is_seen, scaled, vec.const(-math.inf))


def _splat_integer(builder: ir.IRBuilder, value: Any) -> Any:
    undefined = ir.Constant(ir.VectorType(_I64, LANES), ir.Undefined)
    one = builder.insert_element(undefined, value, _I32(0))
    mask = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.shuffle_vector(one, undefined, mask)


def _value_tile(num_rows: int) -> Any:
    @intrinsic
    def mix(
        _typing: Any, kind: Any, weights: Any, fades: Any, offsets: Any, values: Any,
        num_keys: Any, width: Any, out: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vec = _Vectors(builder, signature.args[0])
            wide = builder.and_(args[6], _I64(-2 * LANES))
            with cgutils.for_range(builder, builder.lshr(wide, _I64(5))) as loop:
                start = builder.mul(loop.index, _I64(2 * LANES))
                _emit_mix(vec, num_rows, 2, start, *args[1:])
            with builder.if_then(builder.icmp_signed("<", wide, args[6])):
                _emit_mix(vec, num_rows, 1, wide, *args[1:])
            return context.get_dummy_value()

        args = (kind, weights, fades, offsets, values, num_keys, width, out)
        return types.none(*args), generate

    return mix


def _emit_mix(
    vec: _Vectors, num_rows: int, num_vectors: int, start: Any, weights: Any, fades: Any,
    offsets: Any, values: Any, num_keys: Any, width: Any, out: Any,
) -> None:  # fmt: skip
    """out[r][c] = out[r][c] * fades[r] + sum over keys j, in order, of weights[r][j] *
    values[offsets[j] + c], for `num_vectors` vectors of columns from `start` on."""
    b = vec.builder
    sums = []
    for row in range(num_rows):
        fade = vec.spread(vec.behind(fades, row))
        for v in range(num_vectors):
            place = b.add(b.add(b.mul(width, _I64(row)), start), _I64(v * LANES))
            address = vec.behind(out, place)
            slot = cgutils.alloca_once(b, vec.type)
            b.store(b.fmul(vec.load(address), fade), slot)
            sums.append((row, v, slot, address))
    with cgutils.for_range(b, num_keys) as loop:
        offset = b.load(vec.pointer(b.add(offsets, b.mul(loop.index, _I64(8))), _I64))
        line = vec.behind_stored(values, b.add(offset, start))
        lanes = [vec.load_stored(vec.behind_stored(line, v * LANES)) for v in range(num_vectors)]
        for row, v, slot, _ in sums:
            place = b.add(_I64(row * BLOCK), loop.index)
            factor = vec.spread(vec.behind(weights, place))
            b.store(vec.fma(factor, lanes[v], b.load(slot)), slot)
    for _, _, slot, address in sums:
        vec.store(b.load(slot), address)


@intrinsic
def fetch_add(_typing: Any, _address: Any, _amount: Any) -> Any:
    """Atomically add to the int64 at `address`; returns what it was."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _I64.as_pointer())
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
        return builder.bitcast(builder.shl(builder.zext(args[1], _I32), _I32(16)), ir.FloatType())

    return result(kind, kind), generate


@intrinsic
def narrow(_typing: Any, kind: Any, _number: Any) -> Any:
    """A computed number as it is stored, rounded to nearest even."""

    def generate(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if signature.args[0] != types.uint16:
            return args[1]
        bits = builder.bitcast(args[1], _I32)
        odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
        rounded = builder.add(bits, builder.add(odd, _I32(0x7FFF)))
        is_nan = builder.fcmp_unordered("uno", args[1], args[1])
        kept = builder.select(is_nan, _I32(0x7FC00000), rounded)
        return builder.trunc(builder.lshr(kept, _I32(16)), _I16)

    computing = types.float32 if kind == types.uint16 else kind
    return kind(kind, computing), generate


score_1, score_2, score_3, score_6 = (_score_tile(rows) for rows in (1, 2, 3, MAX_TILE_ROWS))
mix_1, mix_2, mix_3, mix_6 = (_value_tile(rows) for rows in (1, 2, 3, MAX_TILE_ROWS))
