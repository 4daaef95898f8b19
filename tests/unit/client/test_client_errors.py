"""Which failures are worth another attempt, and for how long."""

from __future__ import annotations

import grpc
import pytest

from whiflash.client.errors import (
    CallError,
    CancelledError,
    Failure,
    ResourceExhaustedError,
    ServerError,
    UnavailableError,
    failure_of,
)
from whiflash.client.options import call_message
from whiflash.client.resumption import MAX_WAIT_S, Backoff, Resumption

Code = grpc.StatusCode


def aio_error(code: grpc.StatusCode, **trailing: str) -> grpc.aio.AioRpcError:
    pairs = [(key.replace("_", "-"), value) for key, value in trailing.items()]
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*pairs), "details")


@pytest.mark.parametrize(
    ("code", "trailing", "may_retry"),
    [
        (Code.UNAVAILABLE, {}, True),
        (Code.UNAVAILABLE, {"x_request_id": "r", "retry_after": "1"}, True),
        (Code.INTERNAL, {}, True),
        (Code.INTERNAL, {"x_request_id": "r"}, False),
        (Code.CANCELLED, {}, True),
        (Code.CANCELLED, {"x_request_id": "r"}, False),
        (Code.RESOURCE_EXHAUSTED, {}, False),
        (Code.RESOURCE_EXHAUSTED, {"x_request_id": "r", "retry_after": "2"}, True),
        (Code.DEADLINE_EXCEEDED, {}, False),
        (Code.INVALID_ARGUMENT, {"x_request_id": "r"}, False),
        (Code.UNIMPLEMENTED, {}, False),
    ],
)
def test_retries(code: grpc.StatusCode, trailing: dict[str, str], may_retry: bool) -> None:
    assert failure_of(aio_error(code, **trailing)).may_retry is may_retry


def test_errors_are_typed_and_tell_what_the_server_said() -> None:
    failure = failure_of(aio_error(Code.INVALID_ARGUMENT, x_request_id="r", whiflash_param="top_p"))
    assert (failure.error.param, failure.error.request_id) == ("top_p", "r")
    assert str(failure.error) == "details"
    assert type(failure_of(aio_error(Code.CANCELLED)).error) is CancelledError
    assert type(failure_of(aio_error(Code.DATA_LOSS)).error) is ServerError


def test_backoff_grows_ends_and_starts_anew() -> None:
    backoff = Backoff(4)
    lost = Failure(UnavailableError("lost", Code.UNAVAILABLE), is_answer=False)
    waits = [backoff.wait_s(lost) for _ in range(4)]
    assert waits[0] < waits[2] < waits[3] <= MAX_WAIT_S
    with pytest.raises(UnavailableError):
        backoff.wait_s(lost)
    backoff.progressed()
    assert backoff.wait_s(lost) < 0.2


def test_a_server_that_names_a_time_is_waited_for() -> None:
    full = ResourceExhaustedError("full", Code.RESOURCE_EXHAUSTED, "r", None, 3.0)
    assert Backoff(1).wait_s(Failure(full, is_answer=True)) == 3.0


def test_a_stream_that_ends_early_is_broken() -> None:
    run = Resumption(call_message("x", {}))
    assert not run.is_done
    assert run.broken().may_retry
    assert isinstance(run.broken().error, CallError)


def test_seed_is_fixed_and_key_kept_until_ids_came() -> None:
    run = Resumption(call_message("x", {"idempotency_key": "k"}))
    first, second = run.request(), run.request()
    assert first == second
    assert first.call.sampling.HasField("seed")
    assert first.call.idempotency_key == "k"
