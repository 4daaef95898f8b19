"""Vector arithmetic in LLVM, with every operation and its order fixed.

An auto-vectoriser may compute a row differently in a full tile and in a remainder; here each lane's
operations are the same whatever tile a row is in. Addresses are int64. `kind` is a type that names
the stored numbers: uint16 is bfloat16, else the type itself; the arithmetic is float64 for float64
and float32 for the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

LANES = 16
I64, I32, I16 = ir.IntType(64), ir.IntType(32), ir.IntType(16)
_LN2_HIGH = {32: 0.693359375, 64: 6.93145751953125e-1}
_LN2_LOW = {32: -2.12194440e-4, 64: 1.42860682030941723212e-6}
_EXP_DEGREE = {32: 7, 64: 13}
_EXP_FLOOR = {32: -86.0, 64: -700.0}


class Vectors:
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
        raw = b.load(self.pointer(address, ir.VectorType(I16, LANES)), align=2)
        wide = b.zext(raw, ir.VectorType(I32, LANES))
        sixteen = ir.Constant(wide.type, [16] * LANES)
        return b.bitcast(b.shl(wide, sixteen), self.type)

    def behind(self, address: Any, count: Any) -> Any:
        """Address of the `count`-th number of the computing type behind `address`."""
        return self._offset(address, count, self.bits // 8)

    def behind_stored(self, address: Any, count: Any) -> Any:
        return self._offset(address, count, 2 if self.kind == types.uint16 else self.bits // 8)

    def _offset(self, address: Any, count: Any, size: int) -> Any:
        number = I64(count) if isinstance(count, int) else count
        return self.builder.add(address, self.builder.mul(number, I64(size)))

    def spread(self, address: Any) -> Any:
        """The number at `address` in all lanes."""
        value = self.builder.load(self.pointer(address, self.scalar), align=4)
        return self.splat(value)

    def splat(self, value: Any) -> Any:
        one = self.builder.insert_element(ir.Constant(self.type, ir.Undefined), value, I32(0))
        mask = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
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
