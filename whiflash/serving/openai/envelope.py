"""The outermost layer: a request id on every answer, and no fault that a client could read."""

from __future__ import annotations

import logging

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whiflash.obs.json_logs import log_fault
from whiflash.serving.openai.problems import problem_of
from whiflash.serving.openai.sse import problem_response
from whiflash.serving.request_ids import request_id_of

logger = logging.getLogger(__name__)


class Envelope:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_of(Headers(scope=scope).get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = request_id
        has_started = False

        async def send_named(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except Exception as error:
            log_fault(logger, "http request failed", error, request_id=request_id)
            if has_started:
                raise
            await problem_response(problem_of(error))(scope, receive, send_named)
