"""Request bodies in the OpenAPI document. Routes read them by themselves, bounded, so the
framework does not know their models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from whiflash.serving.openai.rules import Body

_REF = "#/components/schemas/{model}"


def body_of(kind: type[Body]) -> dict[str, Any]:
    """The `openapi_extra` of a route."""
    schema = {"$ref": _REF.format(model=kind.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe_bodies(app: FastAPI, kinds: Sequence[type[Body]]) -> None:
    """Adds the models of `kinds` to the document of `app`."""

    def document() -> dict[str, Any]:
        if not app.openapi_schema:
            _, extra = models_json_schema(
                [(kind, "validation") for kind in kinds], ref_template=_REF
            )
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(extra["$defs"])
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
