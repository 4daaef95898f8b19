"""What happens to a request field: honoured, accepted without effect, or refused.

The marks stand beside the fields of the body models; the models reject bad requests by them and
`docs/api.md` is rendered from them, so that there is one table only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True, slots=True)
class Honoured:
    """The field does what `text` says."""

    text: str


@dataclass(frozen=True, slots=True)
class NoEffect:
    """The field is accepted: it cannot change the text, and nothing else comes of it."""

    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Any value but those in `neutral`, which ask for nothing, is a 400 that says `why`."""

    why: str
    neutral: tuple[object, ...] = ()

    def check(self, value: object) -> object:
        """`value`, if it asks for nothing."""
        if value is None or any(_is_same(value, item) for item in self.neutral):
            return value
        raise PydanticCustomError("unsupported_parameter", "{why}", {"why": self.why})

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: object) -> dict[str, Any]:
        return {"enum": [None, *self.neutral]}


Rule = Honoured | NoEffect | Refused


class Body(BaseModel):
    """Base of everything that arrives over HTTP: unknown names and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def rules_of(body: type[Body]) -> dict[str, Rule]:
    """The rule of each field of a body, in the order of the class."""
    return {name: _rule(name, field.metadata) for name, field in body.model_fields.items()}


def bad_field(param: str, message: str) -> PydanticCustomError:
    """The error for a field that a check of several fields found wrong."""
    return PydanticCustomError("invalid_value", "{text}", {"text": message, "param": param})


def _rule(name: str, metadata: list[Any]) -> Rule:
    for mark in metadata:
        if isinstance(mark, Honoured | NoEffect | Refused):
            return mark
    raise TypeError(f"field {name} has no rule")


def _is_same(value: object, other: object) -> bool:
    return isinstance(value, bool) is isinstance(other, bool) and value == other


def _finite(value: dict[str, Any]) -> dict[str, Any]:
    """JSON has numbers beyond float's range, which arrive as infinity."""
    todo: list[object] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            raise PydanticCustomError("invalid_value", "it holds a number out of range")
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_finite)]
