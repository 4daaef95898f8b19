"""One table: what each error is called in HTTP, in OpenAI's error object and in gRPC."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import ceil

from whiflash.core.errors import (
    ConfigError,
    DeadlineExceededError,
    DrainingError,
    EngineClosedError,
    InvalidRequestError,
    NotFoundError,
    NumericsError,
    PermissionDeniedError,
    PromptTooLongError,
    QueueFullError,
    RateLimitedError,
    RequestCancelledError,
    UnauthenticatedError,
    WhiFlashError,
)
from whiflash.trajectories.errors import StoreClosedError, StoreUnavailableError

INTERNAL_MESSAGE = "internal error; the server's log has more under this request id"


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """grpc is the name of a grpc.StatusCode. `type` and `code` stand in OpenAI's error object.
    `retry_after_s` is None where asking again cannot help."""

    http: int
    type: str
    code: str | None
    grpc: str
    retry_after_s: float | None = None


_INVALID = "invalid_request_error"
_SERVER = "server_error"
_INTERNAL = ErrorStatus(500, _SERVER, "internal_error", "INTERNAL")

# The first class that an error is an instance of counts, so subclasses stand first.
STATUSES: tuple[tuple[type[BaseException], ErrorStatus], ...] = (
    (
        PromptTooLongError,
        ErrorStatus(400, _INVALID, "context_length_exceeded", "INVALID_ARGUMENT"),
    ),
    (InvalidRequestError, ErrorStatus(400, _INVALID, None, "INVALID_ARGUMENT")),
    (UnauthenticatedError, ErrorStatus(401, _INVALID, "invalid_api_key", "UNAUTHENTICATED")),
    (
        PermissionDeniedError,
        ErrorStatus(403, "permission_error", "permission_denied", "PERMISSION_DENIED"),
    ),
    (NotFoundError, ErrorStatus(404, _INVALID, "not_found", "NOT_FOUND")),
    (
        RateLimitedError,
        ErrorStatus(429, "rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED", 1.0),
    ),
    (QueueFullError, ErrorStatus(503, _SERVER, "overloaded", "RESOURCE_EXHAUSTED", 1.0)),
    (DrainingError, ErrorStatus(503, _SERVER, "unavailable", "UNAVAILABLE", 1.0)),
    (EngineClosedError, ErrorStatus(503, _SERVER, "unavailable", "UNAVAILABLE", 5.0)),
    (
        DeadlineExceededError,
        ErrorStatus(504, "timeout_error", "deadline_exceeded", "DEADLINE_EXCEEDED"),
    ),
    (RequestCancelledError, ErrorStatus(499, _INVALID, "cancelled", "CANCELLED")),
    (asyncio.CancelledError, ErrorStatus(499, _INVALID, "cancelled", "CANCELLED")),
    (StoreUnavailableError, ErrorStatus(503, _SERVER, "unavailable", "UNAVAILABLE", 1.0)),
    (StoreClosedError, ErrorStatus(503, _SERVER, "unavailable", "UNAVAILABLE", 5.0)),
    (NumericsError, _INTERNAL),
    (ConfigError, _INTERNAL),
    (WhiFlashError, _INTERNAL),
)


def status_of(error: BaseException) -> ErrorStatus:
    """The row of an error; INTERNAL for all that nobody raises on purpose. Limits that say when
    they end do so in `retry_after_s`. A cancelled task may carry the reason of its end."""
    if isinstance(error, asyncio.CancelledError) and error.args:
        reason = error.args[0]
        error = reason if isinstance(reason, WhiFlashError) else error
    for kind, status in STATUSES:
        if isinstance(error, kind):
            return _with_wait(status, error)
    return _INTERNAL


def code_of(error: BaseException) -> str | None:
    """OpenAI's `code`: as in the table, but a missing model has one of its own."""
    if isinstance(error, NotFoundError) and error.param == "model":
        return "model_not_found"
    return status_of(error).code


def param_of(error: BaseException) -> str | None:
    """The offending field, where the error names one."""
    param = getattr(error, "param", None)
    return param if isinstance(param, str) else None


def message_of(error: BaseException) -> str:
    """What a client may read: our own messages in one line, nothing of a fault's."""
    if status_of(error).grpc == "INTERNAL" and not isinstance(error, NumericsError):
        return INTERNAL_MESSAGE
    if isinstance(error, asyncio.CancelledError):
        return "the request was cancelled"
    return " ".join(str(error).split())


def retry_after(error: BaseException) -> str | None:
    """Value of a Retry-After header, whole seconds; None where there is none to send."""
    wait_s = status_of(error).retry_after_s
    return None if wait_s is None else str(max(1, ceil(wait_s)))


def _with_wait(status: ErrorStatus, error: BaseException) -> ErrorStatus:
    if not isinstance(error, RateLimitedError):
        return status
    return ErrorStatus(status.http, status.type, status.code, status.grpc, error.retry_after_s)
