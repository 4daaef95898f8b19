"""Regular expressions of JSON Schema as rules of a grammar, inside a JSON string.

The grammar library's own conversion lets strings through that do not match (`^a(x[0-9]+)?$`
allows "a7"), so rules are written here from the expression's syntax tree. The whole string must
match: JSON Schema asks for a match somewhere, which is wider.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

from whiflash.chat.constraints.keywords import SchemaError

MAX_PATTERN_CHARS = 512
MAX_SIZE = 5000
"""Characters that a match may have, unbounded repetitions counted once: nested bounds multiply."""

_LAST = 0x10FFFF
_ESCAPED: Final = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '\\"', 0x5C: "\\\\"}
_RAW: Final = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, _LAST))
"""What a JSON string holds as it is; of the rest only short escapes are written."""

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


def length_rule(low: int, high: int | None) -> str:
    """Any string of `low` to `high` characters, without its quotes."""
    return _repeat(_characters([(0, _LAST)]), low, high)


def pattern_rule(pattern: object, where: str) -> str:
    """Strings that match, without their quotes. Raises SchemaError on what is not supported."""
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARS:
        raise SchemaError(f"'pattern' at {where} must be a text of at most {MAX_PATTERN_CHARS}")
    try:
        parsed = _parser.parse(pattern)
        if parsed.state.flags & ~re.UNICODE:
            raise SchemaError("flags inside the expression")
        tree = list(parsed)
        if _size(tree) > MAX_SIZE:
            raise SchemaError(f"it repeats too much: over {MAX_SIZE} characters")
        return _sequence(_unanchored(tree))
    except (re.error, SchemaError, OverflowError) as error:
        raise SchemaError(f"'pattern' at {where} is not supported: {error}") from None


def _unanchored(tree: list[Any]) -> list[Any]:
    """Without ^ at the start and $ at the end, of each alternative."""
    if len(tree) == 1 and tree[0][0] is ops.BRANCH:
        branches = [_unanchored(list(branch)) for branch in tree[0][1][1]]
        return [(ops.BRANCH, (None, branches))]
    if tree and tree[0] == (ops.AT, ops.AT_BEGINNING):
        tree = tree[1:]
    if tree and tree[-1] == (ops.AT, ops.AT_END):
        tree = tree[:-1]
    return tree


def _size(tree: Any) -> int:
    total = 0
    for op, value in tree:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            low, high, inner = value
            times = low if high is ops.MAXREPEAT else high
            total += max(int(times), 1) * _size(inner)
        elif op is ops.BRANCH:
            total += sum(_size(branch) for branch in value[1])
        else:
            total += _size(value[3]) if op is ops.SUBPATTERN else 1
    return total


def _sequence(tree: Any) -> str:
    return " ".join(_item(op, value) for op, value in tree) or '""'


def _item(op: Any, value: Any) -> str:
    if op is ops.LITERAL:
        return _characters([(value, value)])
    if op is ops.NOT_LITERAL:
        return _characters(_complement([(value, value)]))
    if op is ops.ANY:
        return _characters(_complement([(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]))
    if op is ops.IN:
        return _characters(_set(value))
    if op is ops.BRANCH:
        return "(" + " | ".join(_sequence(branch) for branch in value[1]) + ")"
    if op is ops.SUBPATTERN and not value[1] and not value[2]:
        return f"({_sequence(value[3])})"
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        low, high, inner = value
        return _repeat(f"({_sequence(inner)})", low, None if high is ops.MAXREPEAT else high)
    raise SchemaError(str(op).lower().replace("_", " "))


def _repeat(item: str, low: int, high: int | None) -> str:
    if high is None:
        return f"{item}*" if low == 0 else f"{item}{{{low},}}"
    return f"{item}{{{low},{high}}}" if high else '""'


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
            ranges += _complement(_CATEGORIES[_NEGATED[value]])
    return _complement(ranges) if is_negated else ranges


def _complement(ranges: Ranges) -> Ranges:
    result: list[tuple[int, int]] = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            result.append((start, low - 1))
        start = max(start, high + 1)
    if start <= _LAST:
        result.append((start, _LAST))
    return result


def _characters(ranges: Ranges) -> str:
    """One character of the set, as JSON writes it."""
    raw = [
        (max(low, first), min(high, last))
        for low, high in sorted(ranges)
        for first, last in _RAW
        if max(low, first) <= min(high, last)
    ]
    parts = [f"[{''.join(_span(low, high) for low, high in raw)}]"] if raw else []
    parts += [
        f'"\\\\{letter}"'
        for code, letter in _ESCAPED.items()
        if any(low <= code <= high for low, high in ranges)
    ]
    if not parts:
        raise SchemaError("a set of characters that JSON cannot write")
    return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"


def _span(low: int, high: int) -> str:
    return f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}"
