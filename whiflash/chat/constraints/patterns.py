"""Regular expressions of JSON Schema as rules of a grammar, inside a JSON string.

The grammar library's own conversion lets strings through that do not match (`^a(x[0-9]+)?$`
allows "a7"), so rules are written here from the expression's syntax tree. The whole string must
match: JSON Schema asks for a match somewhere, which is wider.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

from whiflash.chat.constraints.charsets import LAST, SETS, Ranges, charset
from whiflash.chat.constraints.keywords import SchemaError
from whiflash.chat.constraints.pattern_cost import require_cheap, size_of

MAX_PATTERN_CHARS = 512

_ESCAPED: Final = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '\\"', 0x5C: "\\\\"}
_RAW: Final = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, LAST))
"""What a JSON string holds as it is; of the rest only short escapes are written."""

_ANY_CHARACTER: Final = r'([^\x00-\x1f"\\]|\\["\\/bfnrt])'


@dataclass(frozen=True, slots=True)
class StringRule:
    """What may stand between the quotes, as a rule of the grammar. num_states: places in it that
    masks are made for, which is what it costs to compile."""

    text: str
    num_states: int


def length_rule(low: int, high: int | None) -> StringRule:
    """Any string of `low` to `high` characters.

    As one expression, which the library turns into one automaton: as a rule that is repeated,
    each mask of a 49,152 vocabulary took 40 ms at 60 characters.
    """
    bounds = f"{{{low},{'' if high is None else high}}}"
    return StringRule(f"Regex({json.dumps(_ANY_CHARACTER + bounds)})", high or low)


def pattern_rule(pattern: object, where: str) -> StringRule:
    """Strings that match. Raises SchemaError on what is not supported."""
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARS:
        raise SchemaError(f"'pattern' at {where} must be a text of at most {MAX_PATTERN_CHARS}")
    try:
        parsed = _parser.parse(pattern)
        if parsed.state.flags & ~re.UNICODE:
            raise SchemaError("flags inside the expression")
        tree = _unanchored(list(parsed))
        require_cheap(tree)
        return StringRule(_sequence(tree), size_of(tree))
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


def _sequence(tree: Any) -> str:
    return " ".join(_item(op, value) for op, value in tree) or '""'


def _item(op: Any, value: Any) -> str:
    if op in SETS:
        return _characters(charset(op, value))
    if op is ops.BRANCH:
        return "(" + " | ".join(_sequence(branch) for branch in value[1]) + ")"
    if op is ops.SUBPATTERN and not value[1] and not value[2]:
        return f"({_sequence(value[3])})"
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        low, high, inner = value
        item = _sequence(inner)
        is_one = len(inner) == 1 and item[0] in "[("
        return _repeat(item if is_one else f"({item})", low,
                       None if high is ops.MAXREPEAT else high)  # fmt: skip
    raise SchemaError(str(op).lower().replace("_", " "))


def _repeat(item: str, low: int, high: int | None) -> str:
    if high is None:
        return f"{item}*" if low == 0 else f"{item}{{{low},}}"
    return f"{item}{{{low},{high}}}" if high else '""'


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
