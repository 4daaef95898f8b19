"""JSON Schemas from strangers: bounded, checked, and rewritten so that the grammar made of them
allows valid values only.

The grammar library ignores what it does not know (`not`, `contains`, what stands beside `anyOf`,
...). Here every keyword that restricts values is either honoured or refused by name. Where a
schema leaves freedom that a grammar cannot give exactly, less is allowed, never more: objects
that list properties have no others, patterns match the whole string.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from whiflash.chat.constraints.branches import are_disjoint
from whiflash.chat.constraints.keywords import (
    SAFE_FORMATS,
    TYPES,
    SchemaError,
    check_count,
    refuse_unsupported,
    require_alone,
)
from whiflash.chat.constraints.pointer import resolve, target_of
from whiflash.chat.constraints.scalars import (
    Schema,
    implied_types,
    named_types,
    number_schema,
    require_exact,
    string_rule,
)
from whiflash.core.errors import InvalidRequestError

MAX_SCHEMA_CHARS = 128 << 10
MAX_DEPTH = 32
MAX_NODES = 4000
MAX_CHOICES = 2000
MAX_STRING_STATES = 256
"""Each costs some 20 ms of compilation at 49,152 ids."""

STAND_IN = "whiflash-string-"


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """text: the rewritten schema. rules: by the pattern that stands in its place, what a string
    may hold, as a rule of the grammar."""

    text: str
    rules: Mapping[str, str]


def checked_schema(text: str, param: str, what: str) -> CheckedSchema:
    """Raises InvalidRequestError naming `param`, the place in the schema and why."""
    if len(text) > MAX_SCHEMA_CHARS:
        raise InvalidRequestError(
            f"{param}: {what} has {len(text)} characters, at most {MAX_SCHEMA_CHARS} are read",
            param,
        )
    try:
        document = json.loads(text, parse_constant=_no_constant)
        rewriter = _Rewriter(document)
        rewritten = json.dumps(rewriter.root(), ensure_ascii=False)
        rewritten.encode()  # half a surrogate pair is no text
        return CheckedSchema(rewritten, rewriter.rules)
    except RecursionError:
        raise InvalidRequestError(f"{param}: {what} is nested too deeply", param) from None
    except (ValueError, ArithmeticError) as error:
        raise InvalidRequestError(f"{param}: {what}: {error}", param) from None


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


class _Rewriter:
    """One document. References end in a table of definitions, each rewritten once."""

    def __init__(self, document: object) -> None:
        self._document = document
        self.rules: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._definitions: dict[str, Schema] = {}
        self._num_nodes = 0
        self._num_states = 0
        self._num_choices = 0

    def root(self) -> Schema:
        result = self._schema(self._document, "#", 0)
        return {**result, "$defs": self._definitions} if self._definitions else result

    def _schema(self, schema: object, where: str, depth: int) -> Schema:
        """`where` is a JSON pointer for people."""
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise SchemaError(f"more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            raise SchemaError(f"nested more than {MAX_DEPTH} deep")
        if schema is True:
            return {}
        if not isinstance(schema, dict):
            raise SchemaError(f"no value is allowed at {where} by {json.dumps(schema)[:40]}")
        refuse_unsupported(schema, where)
        for keyword, rewrite in self._compositions().items():
            if keyword in schema:
                require_alone(schema, keyword, where)
                return rewrite(schema, where, depth)
        return self._typed(schema, where, depth)

    def _compositions(self) -> Mapping[str, Callable[[Schema, str, int], Schema]]:
        return {
            "$ref": self._reference,
            "allOf": self._all_of,
            "anyOf": self._any_of,
            "oneOf": self._one_of,
            "const": self._const,
            "enum": self._enum,
        }

    def _reference(self, schema: Schema, where: str, _: int) -> Schema:
        path = schema["$ref"]
        if not isinstance(path, str) or not (path == "#" or path.startswith("#/")):
            raise SchemaError(f"$ref at {where} must lie inside the schema, as in #/$defs/name")
        if path not in self._names:
            name = f"d{len(self._names)}"
            self._names[path] = name
            self._definitions[name] = self._schema(resolve(self._document, path, where), path, 0)
        return {"$ref": f"#/$defs/{self._names[path]}"}

    def _all_of(self, schema: Schema, where: str, depth: int) -> Schema:
        branches = self._branches(schema, "allOf", where)
        if len(branches) > 1:
            raise SchemaError(f"'allOf' at {where} with more than one schema is not supported")
        return self._schema(branches[0], f"{where}/allOf/0", depth + 1)

    def _any_of(self, schema: Schema, where: str, depth: int, keyword: str = "anyOf") -> Schema:
        branches = self._branches(schema, keyword, where)
        return {
            "anyOf": [
                self._schema(branch, f"{where}/{keyword}/{number}", depth + 1)
                for number, branch in enumerate(branches)
            ]
        }

    def _one_of(self, schema: Schema, where: str, depth: int) -> Schema:
        branches = self._branches(schema, "oneOf", where)
        if not are_disjoint([target_of(self._document, branch, where) for branch in branches]):
            raise SchemaError(
                f"'oneOf' at {where} is supported where no value can match two schemas: by type, "
                "or by a required property with different constants; use anyOf otherwise"
            )
        return self._any_of(schema, where, depth, "oneOf")

    @staticmethod
    def _branches(schema: Schema, keyword: str, where: str) -> list[object]:
        branches = schema[keyword]
        if not isinstance(branches, list) or not branches:
            raise SchemaError(f"{keyword!r} at {where} must be a list of schemas")
        return branches

    def _const(self, schema: Schema, where: str, depth: int) -> Schema:
        return self._enum({**schema, "enum": [schema["const"]]}, where, depth)

    def _enum(self, schema: Schema, where: str, _: int) -> Schema:
        values = schema["enum"]
        if not isinstance(values, list):
            raise SchemaError(f"'enum' at {where} must be a list")
        types = named_types(schema, where)
        kept = [v for v in values if types is None or any(TYPES[name](v) for name in types)]
        if not kept:
            raise SchemaError(f"no value at {where} is left to choose from")
        self._num_choices += len(kept)
        if self._num_choices > MAX_CHOICES:
            raise SchemaError(f"more than {MAX_CHOICES} values to choose from")
        for value in kept:
            require_exact(value, where)
        return {"enum": kept}

    def _typed(self, schema: Schema, where: str, depth: int) -> Schema:
        types = named_types(schema, where)
        if types is None:
            types = implied_types(schema, where)
        rewritten = [self._one_type(schema, name, where, depth) for name in types]
        if not rewritten:
            return {}
        return rewritten[0] if len(rewritten) == 1 else {"anyOf": rewritten}

    def _one_type(self, schema: Schema, name: str, where: str, depth: int) -> Schema:
        if name == "object":
            return self._object(schema, where, depth)
        if name == "array":
            return self._array(schema, where, depth)
        if name == "string":
            return self._string(schema, where)
        if name in ("number", "integer"):
            return number_schema(schema, name, where)
        return {"type": name}

    def _string(self, schema: Schema, where: str) -> Schema:
        rule = string_rule(schema, where)
        if rule is not None:
            stand_in = f"^{STAND_IN}{len(self.rules)}$"
            self.rules[stand_in] = rule.text
            self._num_states += rule.num_states
            if self._num_states > MAX_STRING_STATES:
                raise SchemaError(
                    f"lengths and patterns of strings add up to more than {MAX_STRING_STATES} "
                    "characters; leave the longest out"
                )
            return {"type": "string", "pattern": stand_in}
        named = schema.get("format")
        return {"type": "string", "format": named} if named in SAFE_FORMATS else {"type": "string"}

    def _object(self, schema: Schema, where: str, depth: int) -> Schema:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise SchemaError(f"'properties' or 'required' at {where} has the wrong type")
        for name in required:
            if name not in properties:
                raise SchemaError(f"{name!r} at {where} is required but not among the properties")
        result: Schema = {"type": "object", "additionalProperties": False}
        if properties:
            result["properties"] = {
                name: self._schema(value, f"{where}/properties/{name}", depth + 1)
                for name, value in properties.items()
            }
            result["required"] = list(dict.fromkeys(required))
        elif (others := schema.get("additionalProperties", True)) is not False:
            others = self._schema(others, f"{where}/additionalProperties", depth + 1)
            result["additionalProperties"] = others or True
        result.update(check_count(schema, where, "minProperties", "maxProperties"))
        is_open = result["additionalProperties"] is not False
        if is_open and result.get("minProperties", 0) > 1:
            raise SchemaError(f"'minProperties' at {where} needs named properties")
        return result

    def _array(self, schema: Schema, where: str, depth: int) -> Schema:
        result: Schema = {"type": "array", **check_count(schema, where, "minItems", "maxItems")}
        items = schema.get("items", True)
        if "prefixItems" in schema:
            first = self._branches(schema, "prefixItems", where)
            result["prefixItems"] = [
                self._schema(item, f"{where}/prefixItems/{number}", depth + 1)
                for number, item in enumerate(first)
            ]
            items = schema.get("items", False)
        if items is not True and items is not False:
            items = self._schema(items, f"{where}/items", depth + 1)
        result["items"] = items
        return result
