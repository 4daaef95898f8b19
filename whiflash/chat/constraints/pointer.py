"""JSON pointers inside one schema."""

from __future__ import annotations

from whiflash.chat.constraints.keywords import SchemaError

MAX_HOPS = 32


def resolve(document: object, path: str, where: str) -> object:
    """What `path` ("#", "#/a/0/b") points to. Raises SchemaError where there is nothing."""
    found = document
    for part in path.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            raise SchemaError(f"$ref at {where} points to {path}, which is not there")
    return found


def target_of(document: object, schema: object, where: str) -> object:
    """The schema itself, or what its references come to."""
    for _ in range(MAX_HOPS):
        if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
            return schema
        schema = resolve(document, schema["$ref"], where)
    raise SchemaError(f"$ref at {where} goes in a circle")
