"""Schemas of single types, and the values that are listed one by one."""

from __future__ import annotations

import math
from typing import Any

from whiflash.chat.constraints.keywords import (
    KINDS,
    TYPES,
    SchemaError,
    check_count,
    check_number,
)
from whiflash.chat.constraints.patterns import StringRule, length_rule, pattern_rule

_SAFE_INTEGER = 2**53

Schema = dict[str, Any]


def named_types(schema: Schema, where: str) -> list[str] | None:
    given = schema.get("type")
    if given is None:
        return None
    names = given if isinstance(given, list) else [given]
    for name in names:
        if not isinstance(name, str) or name not in TYPES:
            raise SchemaError(f"unknown type {name!r} at {where}; use: {', '.join(TYPES)}")
    if not names:
        raise SchemaError(f"no type is allowed at {where}")
    # An integer is a number: a second way to write it would only be ambiguous.
    return [n for n in dict.fromkeys(names) if not (n == "integer" and "number" in names)]


def implied_types(schema: Schema, where: str) -> list[str]:
    """The type whose keywords are used; a schema without any allows every value."""
    kinds = sorted({KINDS[keyword] for keyword in schema if keyword in KINDS})
    if len(kinds) > 1:
        raise SchemaError(f"say the type at {where}: keywords of {' and '.join(kinds)} are mixed")
    return kinds


def string_rule(schema: Schema, where: str) -> StringRule | None:
    """Ours where a length or a pattern is asked for; None where the library's own will do."""
    lengths = check_count(schema, where, "minLength", "maxLength")
    pattern = schema.get("pattern")
    if pattern is not None:
        if lengths:
            raise SchemaError(f"'pattern' beside a length at {where} is not supported")
        return pattern_rule(pattern, where)
    if not lengths:
        return None
    low, high = lengths.get("minLength", 0), lengths.get("maxLength")
    if high is not None and high < low:
        raise SchemaError(f"'maxLength' at {where} is below 'minLength'")
    return length_rule(low, high)


def number_schema(schema: Schema, name: str, where: str) -> Schema:
    result: Schema = {"type": name}
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
        if keyword in schema:
            result[keyword] = check_number(schema[keyword], keyword, name, where)
    if "multipleOf" in result and len(result) > 2:
        raise SchemaError(f"'multipleOf' beside a bound at {where} is not supported")
    return result


def require_exact(value: object, where: str) -> None:
    """Integers that a double cannot hold would be written as another number."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            require_exact(item, where)
    elif isinstance(value, int) and abs(value) > _SAFE_INTEGER:
        raise SchemaError(f"an integer at {where} is beyond 2^53 and could not be written exactly")
    elif isinstance(value, float) and not math.isfinite(value):
        raise SchemaError(f"a number at {where} is too large")
