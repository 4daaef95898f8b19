"""Which regular expressions are cheap: a grammar follows every way in which a string can match, so
expressions that match the same text in many ways make masks slow for everybody."""

from __future__ import annotations

from re import _constants as ops  # type: ignore[attr-defined]
from typing import Any, Final

from whiflash.chat.constraints.charsets import SETS, Ranges, charset, overlap
from whiflash.chat.constraints.keywords import SchemaError

MAX_SIZE: Final = 256
_REPEATS: Final = (ops.MAX_REPEAT, ops.MIN_REPEAT)


def size_of(tree: Any) -> int:
    """Characters of the longest match, unbounded repetitions counted once (or as often as they
    must come), alternatives added up."""
    total = 0
    for op, value in tree:
        if op in _REPEATS:
            low, high, inner = value
            total += max(int(low if high is ops.MAXREPEAT else high), 1) * size_of(inner)
        elif op is ops.BRANCH:
            total += sum(size_of(branch) for branch in value[1])
        else:
            total += size_of(value[3]) if op is ops.SUBPATTERN else 1
    return total


def require_cheap(tree: Any) -> None:
    """Raises SchemaError on expressions that are too long or too ambiguous.

    A repeated group must not match the empty string; if it repeats something itself it must be
    unbounded and hold a character that is not repeated, as in `[a-z]+(-[a-z]+)*`; two repetitions
    of the same characters must not follow each other directly.
    """
    if size_of(tree) > MAX_SIZE:
        raise SchemaError(f"a match may have more than {MAX_SIZE} characters")
    _check(tree)


def _check(tree: Any) -> None:
    last: Ranges = ()
    for op, value in tree:
        run = _run(op, value)
        if overlap(last, run):
            raise SchemaError("two repetitions of the same characters follow each other directly")
        last = run
        for inner in _parts(op, value):
            _check(inner)
        if op in _REPEATS and value[1] > 1:
            _check_repeated(value[1] is ops.MAXREPEAT, list(value[2]))


def _run(op: Any, value: Any) -> Ranges:
    """The characters of which a varying number comes here; none where it is something else."""
    if op is ops.SUBPATTERN and len(value[3]) == 1:
        return _run(*value[3][0])
    if op in _REPEATS and _is_open(value) and len(value[2]) == 1 and value[2][0][0] in SETS:
        return charset(*value[2][0])
    return ()


def _check_repeated(is_unbounded: bool, inner: Any) -> None:
    if len(inner) == 1 and inner[0][0] is ops.SUBPATTERN:
        inner = list(inner[0][1][3])
    if _is_nullable(inner):
        raise SchemaError("what is repeated may be empty")
    if not _holds_open(inner):
        return
    has_anchor = any(op in SETS and op is not ops.ANY for op, _ in inner)
    if not (is_unbounded and has_anchor):
        raise SchemaError("a repetition of repetitions")


def _is_open(repeat: Any) -> bool:
    """Comes a varying number of times, and more than once."""
    low, high, _ = repeat
    return bool(low != high and high > 1)


def _holds_open(tree: Any) -> bool:
    return any(
        (op in _REPEATS and _is_open(value)) or any(_holds_open(p) for p in _parts(op, value))
        for op, value in tree
    )


def _is_nullable(tree: Any) -> bool:
    return all(
        (op in _REPEATS and (value[0] == 0 or _is_nullable(value[2])))
        or (op is ops.BRANCH and any(_is_nullable(part) for part in value[1]))
        or (op is ops.SUBPATTERN and _is_nullable(value[3]))
        for op, value in tree
    )


def _parts(op: Any, value: Any) -> list[Any]:
    if op in _REPEATS:
        return [value[2]]
    if op is ops.BRANCH:
        return list(value[1])
    return [value[3]] if op is ops.SUBPATTERN else []
