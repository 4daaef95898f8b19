"""Answers that the connection follows: a client that leaves ends the work at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from whiflash.obs.json_logs import log_fault
from whiflash.serving.openai.problems import Problem, problem_of

logger = logging.getLogger(__name__)
T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
STALL_LIMIT_S = 60.0
"""A client that takes nothing for so long has left without saying so."""


def data_event(value: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + to_json(value) + b"\n\n"


def comment(text: str) -> bytes:
    """Keeps a connection awake; clients skip it."""
    return f": {text}\n\n".encode()


def json_answer(value: dict[str, Any], status: int = 200) -> Response:
    """A whole answer."""
    return Response(to_json(value), status, media_type="application/json")


def problem_response(problem: Problem) -> JSONResponse:
    """A refusal as a whole answer."""
    return JSONResponse(problem.body(), problem.http, problem.headers())


def told(error: Exception) -> Problem:
    """What the client is told; what it must not see goes to the log."""
    problem = problem_of(error)
    if problem.code == "internal_error":
        log_fault(logger, "http request failed", error)
    return problem


async def until_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Result of `work`, which is cancelled when the client leaves (Problem 499, for the log).
    The body must have been read."""
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_gone(request.receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Problem(499, "the client closed the request", code="cancelled")
        return task.result()
    finally:
        await _cancel(task, watch)


class EventStream(Response):
    """Sends `events` as they come. An error before the first one is an ordinary error answer,
    a later one the last event. One task reads and closes `events`."""

    def __init__(
        self, events: AsyncGenerator[bytes, None], stall_limit_s: float = STALL_LIMIT_S
    ) -> None:
        super().__init__(
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )
        del self.headers["content-length"]
        self._events = events
        self._stall_limit_s = stall_limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = asyncio.create_task(self._write(scope, receive, send))
        watch = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({writer, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(writer, watch)

    async def _write(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events) as events:
            try:
                first = await anext(events)
            except Exception as error:  # noqa: BLE001 - told to the client
                await problem_response(told(error))(scope, receive, send)
                return
            try:
                await self._start(send)
                await self._send(send, first)
                await self._send_rest(send, events)
            except TimeoutError:
                logger.warning("a client took nothing for %.0f s; dropped", self._stall_limit_s)
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_rest(self, send: Send, events: AsyncGenerator[bytes, None]) -> None:
        while True:
            try:
                event = await anext(events)
            except StopAsyncIteration:
                return
            except Exception as error:  # noqa: BLE001 - told to the client
                await self._send(send, data_event(told(error).body()))
                return
            await self._send(send, event)

    async def _start(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)

    async def _send(self, send: Send, event: bytes) -> None:
        async with asyncio.timeout(self._stall_limit_s):
            await send({"type": "http.response.body", "body": event, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
