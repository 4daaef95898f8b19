"""Errors between processes, and the status that each has on the wire."""

from __future__ import annotations

import asyncio

import grpc

from whiflash.core.errors import (
    DeadlineExceededError,
    DrainingError,
    EngineClosedError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    QueueFullError,
    RateLimitedError,
    UnauthenticatedError,
    WhiFlashError,
)

INTERNAL_WORDS = "internal error; the server's log has more"


class MismatchError(WhiFlashError):
    """The two ends are of different versions, models, tokenizers, weights or incarnations. The
    message names both sides."""


class LinkLostError(DrainingError):
    """The other end, or the way to it, is gone; it may come back."""


_CODES: tuple[tuple[type[BaseException], grpc.StatusCode], ...] = (
    (MismatchError, grpc.StatusCode.FAILED_PRECONDITION),
    (InvalidRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (UnauthenticatedError, grpc.StatusCode.UNAUTHENTICATED),
    (PermissionDeniedError, grpc.StatusCode.PERMISSION_DENIED),
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (RateLimitedError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (QueueFullError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (DrainingError, grpc.StatusCode.UNAVAILABLE),
    (EngineClosedError, grpc.StatusCode.UNAVAILABLE),
    (DeadlineExceededError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (TimeoutError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (asyncio.CancelledError, grpc.StatusCode.CANCELLED),
)


def code_of(error: BaseException) -> grpc.StatusCode:
    """INTERNAL for all that nobody raises on purpose."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), _INTERNAL)


def words_of(error: BaseException) -> str:
    """Our own messages in one line; of a fault nothing that it may quote."""
    if code_of(error) is _INTERNAL:
        return INTERNAL_WORDS
    return " ".join(str(error).split()) or type(error).__name__


def error_of(failure: grpc.aio.AioRpcError) -> WhiFlashError:
    """What a failed call means to its caller: MismatchError, UnauthenticatedError, or
    LinkLostError for all that may pass."""
    words = failure.details() or failure.code().name
    if failure.code() is grpc.StatusCode.FAILED_PRECONDITION:
        return MismatchError(words)
    if failure.code() is grpc.StatusCode.UNAUTHENTICATED:
        return UnauthenticatedError(words)
    return LinkLostError(f"{failure.code().name}: {words}")


_INTERNAL = grpc.StatusCode.INTERNAL
