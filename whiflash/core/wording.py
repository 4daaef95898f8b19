"""What is wrong with a value, in plain words: validators' complaints as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

_TYPES: Final = {
    "bool": "true or false", "int": "a whole number", "float": "a number", "string": "a text",
    "list": "a list", "tuple": "a list", "path": "a path",
}  # fmt: skip
_TABLES: Final = ("dict", "model", "mapping", "dataclass", "model_attributes")
_BOUNDS: Final = {
    "greater_than_equal": ("at least", "ge"), "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"), "less_than": ("below", "lt"),
}  # fmt: skip
_LENGTHS: Final = {
    "string_too_short": ("at least", "min_length", "characters"),
    "string_too_long": ("at most", "max_length", "characters"),
    "too_short": ("at least", "min_length", "entries"),
    "too_long": ("at most", "max_length", "entries"),
}
_SENTENCES: Final = {
    "missing": "is missing",
    "union_tag_invalid": "its {discriminator} must be one of {expected_tags}, not '{tag}'",
    "union_tag_not_found": "its {discriminator} is missing",
}
_ENDING = re.compile(r"_(type|parsing|from_float|parsing_size|unicode)$")
_DIGITS = re.compile(r"\^\\d\{1,(\d+)\}\$")
_RAW = re.compile(r"^(Input|Value|Field|[A-Z][a-z]+) should ")


def explain(errors: Iterable[Mapping[str, Any]], model: Any, prefix: str = "") -> str:
    """One line for all that is wrong with a table of options: `ValidationError.errors()` of a
    pydantic model. prefix: of the options' names, such as "cluster."."""
    return "; ".join(_told(error, model, prefix) for error in errors)


def _told(error: Mapping[str, Any], model: Any, prefix: str) -> str:
    kind, place, shown = error["type"], error["loc"], repr(error["input"])
    reason = plain_reason(kind, error["msg"], error.get("ctx", {}))
    if not place:
        return reason
    name, fields = prefix + ".".join(map(str, place)), _fields_at(model, place[:-1])
    if kind == "extra_forbidden":
        return f"unknown option {name!r} (known: {', '.join(fields)})"
    if kind == "string_pattern_mismatch":  # the pattern is for machines
        reason = f"must be {fields[place[-1]].description}"
    is_told = kind == "missing" or (kind == "value_error" and shown in reason)
    return f"{name}: {reason}" + ("" if is_told else f", got {shown}")


def _fields_at(model: Any, place: Iterable[str | int]) -> Mapping[Any, Any]:
    """The fields of the table at a place; none where that is no table of options."""
    for step in place:
        if step in getattr(model, "model_fields", ()):
            kind = model.model_fields[step].annotation
            tables = (each for each in (kind, *get_args(kind)) if hasattr(each, "model_fields"))
            model = next(tables, None)
    return getattr(model, "model_fields", {})


def plain_reason(
    kind: str, message: str, context: Mapping[str, Any], *, table: str = "table"
) -> str:
    """What goes behind the name of a value: "must be at least 1".

    kind, message, context: as pydantic calls the error, says it, and what it says it of.
    table: what a mapping is called where the value was written.
    """
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {_number(context[key])}"
    if kind in _LENGTHS:
        return _length(kind, context)
    if kind == "literal_error":
        expected = str(context["expected"])
        return "must be " + expected.replace("True", "true").replace("False", "false")
    if kind in _SENTENCES:
        return _SENTENCES[kind].format_map(context)
    stem = _ENDING.sub("", kind)
    if stem != kind and stem in _TABLES:
        return f"must be {'an' if table[0] in 'aeiou' else 'a'} {table}"
    if stem != kind and stem in _TYPES:
        return f"must be {_TYPES[stem]}"
    if digits := _DIGITS.fullmatch(str(context.get("pattern"))):
        return f"must be 1 to {digits[1]} decimal digits"
    said = message.removeprefix("Value error, ").replace("\n", " ")
    return _RAW.sub("must ", said)


def _length(kind: str, context: Mapping[str, Any]) -> str:
    words, key, what = _LENGTHS[kind]
    count = context[key]
    if count == 1 and words == "at least":
        return "must not be empty"
    return f"must have {words} {count} {what}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
