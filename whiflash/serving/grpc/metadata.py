"""What stands beside a request: who calls, under which id, until when."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping

from whiflash.serving.auth import Authenticator
from whiflash.serving.caller import CallContext
from whiflash.serving.errors import param_of, retry_after
from whiflash.serving.request_ids import request_id_of

REQUEST_ID_KEY = "x-request-id"
PARAM_KEY = "whiflash-param"
RETRY_AFTER_KEY = "retry-after"
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

Trailers = tuple[tuple[str, str], ...]


def text_metadata(pairs: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """The text values; of a repeated key the first one counts."""
    values: dict[str, str] = {}
    for key, value in pairs or ():
        if isinstance(value, str):
            values.setdefault(key, value)
    return values


def call_context(
    metadata: Mapping[str, str], request_id: str, remaining_s: float | None, auth: Authenticator
) -> CallContext:
    """Raises UnauthenticatedError."""
    trace_parent = metadata.get("traceparent", "")
    return CallContext(
        caller=auth.caller(metadata.get("authorization")),
        request_id=request_id,
        deadline_s=None if remaining_s is None else time.monotonic() + remaining_s,
        trace_parent=trace_parent if _TRACE_PARENT.fullmatch(trace_parent) else "",
    )


def request_id_in(metadata: Mapping[str, str]) -> str:
    """The client's, or a new one."""
    return request_id_of(metadata.get(REQUEST_ID_KEY))


def trailers(request_id: str, error: BaseException | None = None) -> Trailers:
    """Trailing metadata: the request id, and of an error the offending field and the seconds
    after which asking again may help."""
    pairs = [(REQUEST_ID_KEY, request_id)]
    if error is not None:
        pairs += param_trailer(error)
        wait = retry_after(error)
        if wait is not None:
            pairs.append((RETRY_AFTER_KEY, wait))
    return tuple(pairs)


def param_trailer(error: BaseException) -> Trailers:
    """The offending field, where an error names one that metadata can carry."""
    param = param_of(error)
    if param is None or not (param.isascii() and param.isprintable()):
        return ()
    return ((PARAM_KEY, param),)
