"""Sets of characters in regular expressions, as ranges of code points."""

from __future__ import annotations

from collections.abc import Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from typing import Any, Final

LAST = 0x10FFFF
SETS: Final = (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN)
"""Parts of an expression that match exactly one character."""

_CATEGORIES: Final = {
    ops.CATEGORY_DIGIT: ((0x30, 0x39),),
    ops.CATEGORY_WORD: ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    ops.CATEGORY_SPACE: ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)),
}
_NEGATED: Final = {
    ops.CATEGORY_NOT_DIGIT: ops.CATEGORY_DIGIT,
    ops.CATEGORY_NOT_WORD: ops.CATEGORY_WORD,
    ops.CATEGORY_NOT_SPACE: ops.CATEGORY_SPACE,
}

Ranges = Sequence[tuple[int, int]]


def charset(op: Any, value: Any) -> Ranges:
    """What one of `SETS` matches. Classes like `\\d` are ASCII, as in JSON Schema."""
    if op is ops.LITERAL:
        return [(value, value)]
    if op is ops.NOT_LITERAL:
        return complement([(value, value)])
    if op is ops.ANY:
        return complement([(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)])
    return _set(value)


def overlap(one: Ranges, other: Ranges) -> bool:
    return any(max(a, c) <= min(b, d) for a, b in one for c, d in other)


def _set(items: Any) -> Ranges:
    ranges: list[tuple[int, int]] = []
    is_negated = False
    for op, value in items:
        if op is ops.NEGATE:
            is_negated = True
        elif op is ops.LITERAL:
            ranges.append((value, value))
        elif op is ops.RANGE:
            ranges.append(value)
        elif value in _CATEGORIES:
            ranges += _CATEGORIES[value]
        else:
            ranges += complement(_CATEGORIES[_NEGATED[value]])
    return complement(ranges) if is_negated else ranges


def complement(ranges: Ranges) -> Ranges:
    result: list[tuple[int, int]] = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            result.append((start, low - 1))
        start = max(start, high + 1)
    if start <= LAST:
        result.append((start, LAST))
    return result
