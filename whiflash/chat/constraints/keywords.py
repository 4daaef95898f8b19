"""Keywords of JSON Schema (draft 2020-12): which are honoured, and within which bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

MAX_COUNT = 100_000
"""Largest length, number of items or properties."""

MAX_DIVISOR = 1000
"""Largest `multipleOf`: the grammar has a rule per remainder."""


class SchemaError(ValueError):
    """What cannot be honoured, and where."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": lambda value: _is_number(value) and float(value).is_integer(),  # type: ignore[arg-type]
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}

KINDS: Final[Mapping[str, str]] = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "minProperties": "object",
    "maxProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "maxItems": "array",
    "minLength": "string",
    "maxLength": "string",
    "pattern": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
}
"""Honoured keywords and the type whose values they restrict."""

COMPOSITIONS: Final = frozenset({"type", "$ref", "allOf", "anyOf", "oneOf", "const", "enum"})
"""Honoured keywords that say what a value is."""

UNSUPPORTED: Final = frozenset({
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired",
    "dependentSchemas", "dependencies", "patternProperties", "propertyNames", "additionalItems",
    "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef", "extends",
    "disallow", "divisibleBy",
})  # fmt: skip
"""Keywords that restrict values in a way that no grammar here expresses."""

SAFE_FORMATS: Final = frozenset({
    "date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
})  # fmt: skip
"""Formats that are kept to. JSON Schema calls a format an annotation: others are left free."""


def check_count(schema: Mapping[str, Any], where: str, *keywords: str) -> dict[str, int]:
    """The keywords that are there. Raises SchemaError unless they are counts."""
    counts: dict[str, int] = {}
    for keyword in keywords:
        value = schema.get(keyword)
        if value is None:
            continue
        if not (_is_number(value) and 0 <= value <= MAX_COUNT and int(value) == value):
            raise SchemaError(f"{keyword!r} at {where} must be a count of at most {MAX_COUNT}")
        counts[keyword] = int(value)
    return counts


def check_number(value: object, keyword: str, kind: str, where: str) -> int | float:
    """A bound or divisor. Raises SchemaError on what cannot be honoured."""
    if not _is_number(value) or not math.isfinite(value):  # type: ignore[arg-type]
        raise SchemaError(f"{keyword!r} at {where} must be a number")
    assert isinstance(value, int | float)
    if keyword == "multipleOf" and not (
        kind == "integer" and float(value).is_integer() and 0 < value <= MAX_DIVISOR
    ):
        raise SchemaError(
            f"'multipleOf' at {where} must be a whole number up to {MAX_DIVISOR}, of an integer"
        )
    return value


def refuse_unsupported(schema: Mapping[str, Any], where: str) -> None:
    """Raises SchemaError naming the first keyword that is not supported."""
    for keyword in schema:
        if keyword in UNSUPPORTED:
            raise SchemaError(f"{keyword!r} at {where} is not supported")
    if schema.get("uniqueItems", False) is not False:
        raise SchemaError(f"'uniqueItems' at {where} is not supported")


def require_alone(schema: Mapping[str, Any], keyword: str, where: str) -> None:
    """Beside these keywords only annotations may stand; beside values, their type too."""
    has_type = keyword in ("const", "enum")
    for other in schema:
        is_allowed = other == keyword or (has_type and other == "type")
        if not is_allowed and (other in KINDS or other in COMPOSITIONS):
            raise SchemaError(f"{other!r} beside {keyword!r} at {where} is not supported")
