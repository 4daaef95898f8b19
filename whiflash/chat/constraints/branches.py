"""Whether no value can match two of several schemas: only then is `oneOf` the same as `anyOf`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations


def are_disjoint(schemas: Sequence[object]) -> bool:
    """By their types, or by a property that both require with different constants. False where
    that does not tell."""
    return all(_differ(one, other) for one, other in combinations(schemas, 2))


def _differ(one: object, other: object) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    ours, theirs = _types(one), _types(other)
    if ours and theirs and not ours & theirs:
        return True
    if ours == theirs == {"object"}:
        return _differ_in_property(one, other)
    ours_values, their_values = _values(one), _values(other)
    return bool(ours_values and their_values) and not (ours_values & their_values)


def _differ_in_property(one: dict[str, object], other: dict[str, object]) -> bool:
    for name in _required(one) & _required(other):
        ours, theirs = (_values(_property(schema, name)) for schema in (one, other))
        if ours and theirs and not ours & theirs:
            return True
    return False


def _required(schema: dict[str, object]) -> set[str]:
    required = schema.get("required")
    return (
        {name for name in required if isinstance(name, str)}
        if isinstance(required, list)
        else set()
    )


def _property(schema: dict[str, object], name: str) -> object:
    properties = schema.get("properties")
    return properties.get(name) if isinstance(properties, dict) else None


def _types(schema: dict[str, object]) -> set[str]:
    """Numbers count as one type: 1 is an integer as well."""
    given = schema.get("type")
    names = given if isinstance(given, list) else [given]
    if not all(isinstance(name, str) for name in names):
        return set()
    return {"number" if name == "integer" else str(name) for name in names}


def _values(schema: object) -> set[str]:
    """All values that are allowed, as text; empty where they are not listed. 1 and 1.0 are one."""
    if not isinstance(schema, dict):
        return set()
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list):
        return set()
    return {json.dumps(float(v) if type(v) is int else v, sort_keys=True) for v in listed}
