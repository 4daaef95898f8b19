"""JSON objects that arrive as text inside messages."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from whiflash.core.errors import InvalidRequestError

MAX_DEPTH = 64
"""Deeper objects would meet the recursion limit somewhere between here and the template."""


def read_object(text: str, param: str) -> dict[str, Any]:
    """`text` as a JSON object, keys in their order; an empty text is an empty object.
    Raises InvalidRequestError, naming `param`, on anything else, on numbers that are not finite,
    on lone surrogates and on more than MAX_DEPTH levels."""
    if not text:
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{param} is not JSON: {error}", param) from None
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{param} must be a JSON object", param)
    _check_values(value, param)
    return value


def _check_values(value: dict[str, Any], param: str) -> None:
    todo: list[tuple[object, int]] = [(value, 1)]
    while todo:
        item, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise InvalidRequestError(f"{param} has more than {MAX_DEPTH} levels", param)
        if isinstance(item, dict):
            todo.extend((part, depth + 1) for pair in item.items() for part in pair)
        elif isinstance(item, list):
            todo.extend((part, depth + 1) for part in item)
        else:
            _check_scalar(item, param)


def _check_scalar(item: object, param: str) -> None:
    if isinstance(item, float) and not math.isfinite(item):
        raise InvalidRequestError(f"{param} holds a number out of range", param)
    if isinstance(item, str) and any("\ud800" <= char <= "\udfff" for char in item):
        raise InvalidRequestError(f"{param} holds half a surrogate pair", param)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
