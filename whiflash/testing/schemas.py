"""Random JSON Schemas that the toy's symbols can fill."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

_KEYS = ("a", "b", "key", "x1", "the_name")
_WORDS = ("yes", "no", "a b", "q.", "", "{}", "<b>")


def random_schema(rng: random.Random, depth: int = 2) -> Schema:
    """Every keyword that is honoured may come, none that is refused."""
    makers: list[Callable[[random.Random, int], Schema]] = [
        _string, _integer, _number, _listed, _scalar,
    ]  # fmt: skip
    if depth > 0:
        makers += [_object, _object, _array, _tuple, _either, _several]
    return rng.choice(makers)(rng, depth)


def random_object_schema(rng: random.Random) -> Schema:
    return _object(rng, 2)


def _string(rng: random.Random, _: int) -> Schema:
    low = rng.randrange(3)
    return rng.choice([
        {"type": "string", "maxLength": 4},
        {"type": "string", "minLength": low, "maxLength": low + rng.randrange(4)},
        {"type": "string", "pattern": "^[a-f]{1,3}(-[0-9]+)?$"},
        {"type": "string", "format": "date"},
        {"minLength": 1, "maxLength": 2},
    ])  # fmt: skip


def _integer(rng: random.Random, _: int) -> Schema:
    low = rng.randrange(-20, 20)
    return rng.choice([
        {"type": "integer", "minimum": low, "maximum": low + rng.randrange(300)},
        {"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + 5},
        {"type": "integer", "multipleOf": rng.randrange(1, 9)},
    ])  # fmt: skip


def _number(rng: random.Random, _: int) -> Schema:
    return rng.choice([{"type": "number"}, {"type": "number", "minimum": 0, "maximum": 2.5}])


def _listed(rng: random.Random, _: int) -> Schema:
    values = [*rng.sample(_WORDS, 2), rng.randrange(100), None, [1, "b"], {"k": False}]
    return rng.choice([{"enum": rng.sample(values, 3)}, {"const": rng.choice(values)}])


def _scalar(rng: random.Random, _: int) -> Schema:
    return {"type": rng.choice(["boolean", "null", ["null", "integer"]]), "title": "anything"}


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(_KEYS, rng.randrange(0, 4))
    schema: Schema = {"type": "object"}
    if names:
        schema["properties"] = {name: random_schema(rng, depth - 1) for name in names}
        schema["required"] = rng.sample(names, rng.randrange(len(names) + 1))
        schema["additionalProperties"] = rng.choice([False, True])
    else:
        schema["additionalProperties"] = random_schema(rng, depth - 1)
        schema["maxProperties"] = rng.randrange(3)
    return schema


def _array(rng: random.Random, depth: int) -> Schema:
    low = rng.randrange(2)
    return {"type": "array", "items": random_schema(rng, depth - 1), "minItems": low,
            "maxItems": low + rng.randrange(3)}  # fmt: skip


def _tuple(rng: random.Random, depth: int) -> Schema:
    return {"type": "array", "prefixItems": [random_schema(rng, depth - 1) for _ in range(2)]}


def _either(rng: random.Random, depth: int) -> Schema:
    return {"anyOf": [random_schema(rng, depth - 1), random_schema(rng, depth - 1)]}


def _several(rng: random.Random, depth: int) -> Schema:
    """A definition used twice, and one of two kinds told apart by a constant."""
    kinds = [
        {"type": "object", "properties": {"kind": {"const": kind}, "v": {"$ref": "#/$defs/v"}},
         "required": ["kind"]}
        for kind in ("a", "b")
    ]  # fmt: skip
    del depth
    return rng.choice([{"oneOf": kinds}, {"allOf": kinds[:1]}])


def with_definitions(schema: Schema, rng: random.Random) -> Schema:
    """The document that `random_schema`'s references need."""
    return {**schema, "$defs": {"v": _integer(rng, 0)}}
