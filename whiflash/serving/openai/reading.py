"""Request bodies: bounded, JSON, and nothing else."""

from __future__ import annotations

from typing import TypeVar

from fastapi import Request
from pydantic import ValidationError
from pydantic_core import from_json

from whiflash.serving.openai.problems import Problem, bad_body
from whiflash.serving.openai.rules import Body

MAX_BODY_BYTES = 16 << 20
"""Default bound; a long context in JSON takes a few MiB."""

B = TypeVar("B", bound=Body)


async def read_body(request: Request, kind: type[B], max_bytes: int) -> B:
    """The checked body. Raises Problem: 400, 413 if it is too large, 415 if it is not JSON.

    A page in a browser can send other content types anywhere without asking: so JSON is asked
    for by name, which keeps foreign pages from a server on 127.0.0.1.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, "send the body as content-type application/json")
    return check_body(await _read(request, max_bytes), kind)


def check_body(raw: bytes, kind: type[B]) -> B:
    """Parses and checks. Raises Problem."""
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise Problem(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise Problem(400, "the body must be a JSON object", code="invalid_type")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise bad_body(error, value) from None


async def _read(request: Request, max_bytes: int) -> bytes:
    too_large = Problem(413, f"the body is larger than {max_bytes} bytes", code="request_too_large")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)
