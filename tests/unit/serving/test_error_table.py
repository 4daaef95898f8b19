from __future__ import annotations

import asyncio
import inspect

import grpc
import pytest

from whiflash.core import errors
from whiflash.serving.errors import (
    INTERNAL_MESSAGE,
    STATUSES,
    code_of,
    message_of,
    param_of,
    retry_after,
    status_of,
)

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)
           if issubclass(kind, errors.WhiFlashError)]  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_a_row_with_codes_that_exist(kind: type[errors.WhiFlashError]) -> None:
    status = status_of(kind("said\nwhy"))
    assert grpc.StatusCode[status.grpc]
    assert 400 <= status.http <= 599
    assert status.type
    assert "\n" not in message_of(kind("said\nwhy"))


def test_no_row_hides_behind_another() -> None:
    kinds = [kind for kind, _ in STATUSES]
    for place, kind in enumerate(kinds):
        assert not any(issubclass(kind, earlier) for earlier in kinds[:place]), kind


@pytest.mark.parametrize(
    ("error", "http", "code", "rpc", "wait"),
    [
        (errors.InvalidRequestError("x", "top_p"), 400, None, "INVALID_ARGUMENT", None),
        (errors.PromptTooLongError("x"), 400, "context_length_exceeded", "INVALID_ARGUMENT", None),
        (errors.UnauthenticatedError("x"), 401, "invalid_api_key", "UNAUTHENTICATED", None),
        (errors.PermissionDeniedError("x"), 403, "permission_denied", "PERMISSION_DENIED", None),
        (errors.NotFoundError("x", "model"), 404, "model_not_found", "NOT_FOUND", None),
        (errors.NotFoundError("x"), 404, "not_found", "NOT_FOUND", None),
        (errors.RateLimitedError("x", 2.2), 429, "rate_limit_exceeded", "RESOURCE_EXHAUSTED", "3"),
        (errors.QueueFullError("x"), 503, "overloaded", "RESOURCE_EXHAUSTED", "1"),
        (errors.DrainingError("x"), 503, "unavailable", "UNAVAILABLE", "1"),
        (errors.EngineClosedError("x"), 503, "unavailable", "UNAVAILABLE", "5"),
        (errors.DeadlineExceededError("x"), 504, "deadline_exceeded", "DEADLINE_EXCEEDED", None),
        (errors.RequestCancelledError("x"), 499, "cancelled", "CANCELLED", None),
        (asyncio.CancelledError(), 499, "cancelled", "CANCELLED", None),
        (asyncio.CancelledError(errors.DrainingError("x")), 503, "unavailable", "UNAVAILABLE", "1"),
        (errors.NumericsError("x"), 500, "internal_error", "INTERNAL", None),
        (KeyError("prompt text"), 500, "internal_error", "INTERNAL", None),
    ],
)
def test_the_rows_that_clients_rely_on(
    error: BaseException, http: int, code: str | None, rpc: str, wait: str | None
) -> None:
    status = status_of(error)
    assert (status.http, code_of(error), status.grpc, retry_after(error)) == (http, code, rpc, wait)


def test_a_fault_of_ours_tells_a_client_nothing_of_itself() -> None:
    assert message_of(KeyError("what the client wrote")) == INTERNAL_MESSAGE
    assert param_of(KeyError("x")) is None
    assert param_of(errors.InvalidRequestError("x", "stop")) == "stop"
