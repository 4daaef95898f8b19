"""Errors on the way between a gateway and a verifier."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from whiflash.core import errors
from whiflash.core.errors import (
    DrainingError,
    EngineClosedError,
    InvalidRequestError,
    NotFoundError,
    WhiFlashError,
)
from whiflash.rpc.faults import MismatchError
from whiflash.serving.errors import message_of, param_of, status_of

CLASS_KEY = "whiflash-error"
PARAM_KEY = "whiflash-param"
_PARAM_ERRORS = (InvalidRequestError, NotFoundError)


class VerifierLostError(DrainingError):
    """The verifier, or the way to it, is gone: what it was at goes on elsewhere."""


class NoVerifierError(DrainingError):
    """None takes requests, and none came while one was waited for."""


MOVABLE = (DrainingError, EngineClosedError, MismatchError)
"""What another verifier may do better: this one is lost, leaving, broken, or another by now."""


def status_code(error: Exception) -> grpc.StatusCode:
    """What a verifier answers."""
    if isinstance(error, MismatchError):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc.StatusCode[status_of(error).grpc]


def details(error: Exception) -> str:
    """What a verifier says in words."""
    return " ".join(str(error).split()) if isinstance(error, MismatchError) else message_of(error)


def trailers(error: Exception) -> tuple[tuple[str, str], ...]:
    """From which the other end makes the error again."""
    pairs = [(CLASS_KEY, type(error).__name__)]
    param = param_of(error)
    if param is not None and param.isascii() and param.isprintable():
        pairs.append((PARAM_KEY, param))
    return tuple(pairs)


def error_of(failure: grpc.aio.AioRpcError) -> WhiFlashError:
    """The verifier's own error, or VerifierLostError where it could not answer any more."""
    values = _text(failure.trailing_metadata() or ())
    message = failure.details() or failure.code().name
    kind = _class_named(values.get(CLASS_KEY, ""))
    if kind is None:
        return VerifierLostError(f"the verifier is lost ({failure.code().name}): {message}")
    if issubclass(kind, _PARAM_ERRORS):
        return kind(message, values.get(PARAM_KEY))
    return kind(message)


def _class_named(name: str) -> type[WhiFlashError] | None:
    if name == MismatchError.__name__:
        return MismatchError
    kind = getattr(errors, name, None)
    is_ours = isinstance(kind, type) and issubclass(kind, WhiFlashError)
    return kind if is_ours else None


def _text(pairs: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    return {key: value for key, value in pairs if isinstance(value, str)}
