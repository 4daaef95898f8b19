"""Errors in the shape that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from whiflash.core.wording import plain_reason
from whiflash.serving.errors import code_of, message_of, param_of, retry_after, status_of

_INVALID = "invalid_request_error"
_CODES = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    "unsupported_parameter": "unsupported_parameter",
    "union_tag_invalid": "unsupported_value",
    "literal_error": "invalid_value",
    "greater_than_equal": "integer_below_min_value",
    "less_than_equal": "integer_above_max_value",
}
_WRONG_TYPE, _WRONG_VALUE = "invalid_type", "invalid_value"
BODY_CODES = frozenset({*_CODES.values(), _WRONG_TYPE, _WRONG_VALUE, "invalid_json"})
"""All that a body can be refused with, status 400."""
ROUTE_ERRORS: dict[int, tuple[str, str | None]] = {
    404: ("there is nothing at this path", "not_found"),
    405: ("this path has another method", None),
}
"""What the framework itself refuses, by status: message and code."""
MAX_PARAM, MAX_MESSAGE = 120, 600


class Problem(Exception):  # noqa: N818 - what it is, not how it travels
    """One refusal. `param` names the field as OpenAI writes it: `messages[0].role`."""

    def __init__(
        self,
        http: int,
        message: str,
        type: str = _INVALID,  # noqa: A002 - OpenAI's name
        param: str | None = None,
        code: str | None = None,
        retry_after: str | None = None,
    ) -> None:
        super().__init__(message)
        self.http = http
        self.message = message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "..."
        self.type = type
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The JSON that a client gets."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> dict[str, str]:
        """Headers beside it."""
        return {} if self.retry_after is None else {"retry-after": self.retry_after}


def problem_of(error: BaseException) -> Problem:
    """Any error as a client may see it."""
    if isinstance(error, Problem):
        return error
    status = status_of(error)
    return Problem(
        status.http,
        message_of(error),
        status.type,
        param_of(error),
        code_of(error),
        retry_after(error),
    )


def bad_body(error: ValidationError, body: object) -> Problem:
    """What is wrong with `body`: a name that nobody knows before anything else. Each member of a
    union has a complaint of its own; the one that got furthest into the value says most."""
    items = error.errors(include_url=False, include_input=False)
    unknown = [item for item in items if item["type"] == "extra_forbidden"]
    first = (unknown or items)[0]
    same_field = [item for item in items if item["loc"][:1] == first["loc"][:1]]
    worst = first if unknown else max(same_field, key=_weight)
    kind, context = worst["type"], worst.get("ctx", {})
    param = context.get("param") or _param(worst["loc"], body, kind)
    return Problem(
        400,
        _message(kind, worst["msg"], param, context),
        param=param or None,
        code=_CODES.get(kind, _WRONG_TYPE if kind.endswith("_type") else _WRONG_VALUE),
    )


def _weight(item: ErrorDetails) -> tuple[bool, int]:
    """A member whose type fits was meant; then depth counts."""
    return not item["type"].endswith("_type"), len(item["loc"])


def _message(kind: str, message: str, param: str, context: Mapping[str, Any]) -> str:
    if kind == "extra_forbidden":
        return f"unknown parameter: '{param}'; docs/api.md lists those that are honoured"
    if kind == "missing":
        return f"missing required parameter: '{param}'"
    reason = plain_reason(kind, message, context, table="object")
    return reason if "param" in context or not param else f"{param}: {reason}"


def _param(place: tuple[str | int, ...], body: object, kind: str) -> str:
    """The field in OpenAI's writing. Pydantic mixes names of union members into the place: only
    steps that lead somewhere in the body count, and the last one of what is missing."""
    name, value = "", body
    for number, step in enumerate(place):
        is_missing = kind == "missing" and number == len(place) - 1
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            name, value = f"{name}[{step}]", value[step]
        elif isinstance(step, str) and isinstance(value, dict) and (is_missing or step in value):
            name, value = f"{name}.{step}" if name else step, value.get(step)
    return name if len(name) <= MAX_PARAM else name[:MAX_PARAM] + "..."
