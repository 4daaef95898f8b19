"""Serve's proxy puts the request's id on every answer by itself: ours would be there twice."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"


class OneRequestId:
    """ASGI middleware for an app behind Serve's HTTP proxy. Where the client's id was no id, the
    answer has both: what the client sent, as Serve says, and the one that is used here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER)

        async def send_once(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get(HEADER) == given:
                    del headers[HEADER]
            await send(message)

        await self._app(scope, receive, send_once)
