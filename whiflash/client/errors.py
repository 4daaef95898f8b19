"""What a call to a server may fail with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import grpc

REQUEST_ID_KEY: Final = "x-request-id"
PARAM_KEY: Final = "whiflash-param"
RETRY_AFTER_KEY: Final = "retry-after"


class CallError(Exception):
    """Base of all errors of a call.

    code:          status that the server or the connection ended with.
    request_id:    what the server's log knows the call by; "" if it never answered.
    param:         the offending field, None where none is named.
    retry_after_s: None where asking again cannot help.
    """

    def __init__(
        self,
        message: str,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        request_id: str = "",
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.request_id = request_id
        self.param = param
        self.retry_after_s = retry_after_s


class InvalidArgumentError(CallError):
    """The server cannot honour the request exactly; `param` names the field."""


class UnauthenticatedError(CallError):
    """No API key, or one that the server does not know."""


class PermissionDeniedError(CallError):
    """The key may not do this."""


class NotFoundError(CallError):
    """What the request names does not exist, or belongs to somebody else."""


class ResourceExhaustedError(CallError):
    """A limit, a full queue, or a message that is too large."""


class UnavailableError(CallError):
    """The server cannot be reached, or is going away; retries are used up."""


class DeadlineError(CallError):
    """The call's time is over."""


class CancelledError(CallError):
    """The call was cancelled on the server, by its request id."""


class ServerError(CallError):
    """A fault of the server; its log has more under `request_id`."""


class ResumeError(CallError):
    """The stream broke and cannot be continued exactly: the prompt or the text is another one
    now (another model, another template)."""


_CLASSES: dict[grpc.StatusCode, type[CallError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgumentError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.CANCELLED: CancelledError,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """How one attempt ended. `is_answer`: the server itself said so, not the connection."""

    error: CallError
    is_answer: bool

    @property
    def may_retry(self) -> bool:
        """A lost connection, or a server that asks to come back."""
        if self.error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return False
        if self.error.code is grpc.StatusCode.UNAVAILABLE:
            return True
        if self.error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return self.error.retry_after_s is not None
        lost = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED)
        return not self.is_answer and self.error.code in lost


def failure_of(error: grpc.RpcError) -> Failure:
    """The typed form of what gRPC raised."""
    assert isinstance(error, grpc.Call | grpc.aio.AioRpcError)
    trailing: Any = error.trailing_metadata()  # None where the connection never was, stubs or not
    values = {key: value for key, value in trailing or () if isinstance(value, str)}
    code = error.code()
    typed = _CLASSES.get(code, ServerError)(
        error.details() or code.name,
        code,
        values.get(REQUEST_ID_KEY, ""),
        values.get(PARAM_KEY),
        _seconds(values.get(RETRY_AFTER_KEY)),
    )
    return Failure(typed, is_answer=REQUEST_ID_KEY in values)


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None
