"""Around every call that our own servers answer: token, trace, metrics, and a status for every
error. One interceptor: each further one would cost every message of a stream."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn, Self

import grpc

from whiflash.core.errors import DeadlineExceededError
from whiflash.obs.tracing import NoTracer, Tracer
from whiflash.rpc.access import TRACE_KEY, Access, text_values
from whiflash.rpc.faults import code_of, words_of
from whiflash.rpc.rpc_metrics import RpcMetrics
from whiflash.rpc.sealed import SEALED_METHODS, sealed_handler

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Any, Context], Any]
OPEN_TO_ALL = "/grpc.health."
"""Probes of an orchestrator have no token."""


class ServerInterceptor(grpc.aio.ServerInterceptor):
    """What the module says. A unary call never outlives its caller's deadline or `max_unary_s`.

    A handler may raise WhiFlashError or abort by itself; anything else is INTERNAL and logged.
    """

    def __init__(
        self,
        access: Access,
        metrics: RpcMetrics | None = None,
        tracer: Tracer | None = None,
        max_unary_s: float = 60.0,
    ) -> None:
        self._access = access
        self._metrics = metrics
        self._tracer = tracer or NoTracer()
        self._max_unary_s = max_unary_s

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's handler with all of it around; None for a method that is not served."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return self._wrapped(handler, handler_call_details.method)

    def _wrapped(self, handler: Any, method: str) -> Any:
        if method.startswith(SEALED_METHODS):
            handler = sealed_handler(handler)
        if handler.response_streaming:
            run: Handler = handler.stream_stream or handler.unary_stream
            wrap = self._stream_by(run, method)
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
        else:
            run = handler.stream_unary or handler.unary_unary
            wrap = self._single(run, method)
            make = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
        return make(wrap, handler.request_deserializer, handler.response_serializer)

    def _stream_by(self, run: Handler, method: str) -> Handler:
        writes = _written(run) if inspect.isasyncgenfunction(run) else run
        return self._single(writes, method, is_bounded=False)

    def _single(self, run: Handler, method: str, is_bounded: bool = True) -> Handler:
        async def handle(request: Any, context: Context) -> Any:
            with _Call(self, method, context) as call:
                try:
                    call.check()
                    if not is_bounded:
                        return await run(request, context)
                    async with asyncio.timeout(self._unary_s(context)):
                        return await run(request, context)
                except Exception as error:  # noqa: BLE001 - every error has a status
                    await call.fail(error)

        return handle

    def _unary_s(self, context: Context) -> float:
        left = context.time_remaining()
        return self._max_unary_s if left is None else min(left, self._max_unary_s)


def _written(run: Handler) -> Handler:
    """grpcio drops a generator whose call ends while a response is being sent: it stays suspended,
    with all that it holds, until it is collected as garbage. Here the end closes it at once."""

    async def handle(request: Any, context: Context) -> None:
        async with aclosing(run(request, context)) as responses:
            async for response in responses:
                await context.write(response)

    return handle


class _Call:
    """One call: counted and traced from entry to exit."""

    def __init__(self, owner: ServerInterceptor, method: str, context: Context) -> None:
        self._owner = owner
        self._method = method
        self._context = context
        self._metadata = text_values(context.invocation_metadata())
        self._code = "ok"
        self._began_s = 0.0

    def __enter__(self) -> Self:
        self._began_s = time.perf_counter()
        self._span = self._owner._tracer.start(self._label, self._metadata.get(TRACE_KEY, ""))
        if self._owner._metrics is not None:
            self._owner._metrics.began(self._label)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._code == "ok":
            self._code = "cancelled"
        if self._owner._metrics is not None:
            seconds = time.perf_counter() - self._began_s
            self._owner._metrics.ended(self._label, self._code, seconds)
        self._span.end({"rpc.method": self._label}, "" if self._code == "ok" else self._code)

    @property
    def _label(self) -> str:
        """Service/Name without the package."""
        service, _, name = self._method.lstrip("/").rpartition("/")
        return f"{service.rpartition('.')[2]}/{name}"

    def check(self) -> None:
        """Raises UnauthenticatedError."""
        if not self._method.startswith(OPEN_TO_ALL):
            self._owner._access.check(self._metadata)

    async def fail(self, error: Exception) -> NoReturn:
        """Ends the call with the error's status."""
        if isinstance(error, grpc.aio.AbortError):
            self._code = "aborted by handler"
            raise error
        if isinstance(error, TimeoutError):
            error = DeadlineExceededError(f"{self._label} took longer than its deadline")
        code = code_of(error)
        self._code = code.name.lower()
        if code is grpc.StatusCode.INTERNAL:
            logger.error("%s failed", self._label, exc_info=error)
        await self._context.abort(code, words_of(error))
        raise AssertionError("abort raises")
