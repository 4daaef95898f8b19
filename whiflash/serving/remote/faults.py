"""Errors on the way between a gateway and a verifier."""

from __future__ import annotations

import grpc

from whiflash.core import errors
from whiflash.core.errors import (
    DrainingError,
    EngineClosedError,
    InvalidRequestError,
    NotFoundError,
    WhiFlashError,
)
from whiflash.rpc.access import text_values
from whiflash.rpc.faults import MismatchError
from whiflash.serving.errors import message_of, status_of
from whiflash.serving.grpc.metadata import PARAM_KEY, param_trailer

CLASS_KEY = "whiflash-error"
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
    return ((CLASS_KEY, type(error).__name__), *param_trailer(error))


def error_of(failure: grpc.aio.AioRpcError) -> WhiFlashError:
    """The verifier's own error, or VerifierLostError where it could not answer any more."""
    values = text_values(failure.trailing_metadata())
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
