"""The one place that knows grpc.aio: plain async methods become its handlers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from whiflash.core.errors import DeadlineExceededError, InvalidRequestError, QueueFullError
from whiflash.serving.auth import Authenticator
from whiflash.serving.caller import CallContext
from whiflash.serving.errors import message_of, status_of
from whiflash.serving.grpc.metadata import (
    REQUEST_ID_KEY,
    call_context,
    request_id_in,
    text_metadata,
    trailers,
)
from whiflash.serving.grpc.requests import refuse_unknown

logger = logging.getLogger(__name__)

STATUS_WAIT_S = 1.0
"""How long the status of a stalled call is waited for: it stands behind unread messages."""

Context = grpc.aio.ServicerContext[bytes, bytes]
Handler = Callable[[bytes, Context], Awaitable[Any]]


class StalledClientError(DeadlineExceededError):
    """The client does not read."""


class GrpcAdapter:
    """Authenticates, reads the request, and turns errors into statuses with trailing metadata.

    Requests arrive as bytes and are read here: gRPC's own reader would answer a malformed message
    with UNKNOWN. stall_limit_s: a client that takes no message for that long is given up; until
    then only its own call waits, and its answer is as long as max_tokens at most. max_concurrent:
    open calls; gRPC's own limit would count stalled ones for as long as their clients stay.
    """

    def __init__(self, auth: Authenticator, stall_limit_s: float, max_concurrent: int) -> None:
        self._auth = auth
        self._stall_limit_s = stall_limit_s
        self._max_concurrent = max_concurrent
        self.num_open = 0

    def handler(self, service: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
        """All methods of a service; `servicer` has one of each name."""
        methods = {method.name: self._method(servicer, method) for method in service.methods}
        return grpc.method_handlers_generic_handler(service.full_name, methods)

    def _method(self, servicer: object, method: MethodDescriptor) -> Any:
        run, kind = getattr(servicer, method.name), GetMessageClass(method.input_type)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream(run, kind))
        return grpc.unary_unary_rpc_method_handler(self._unary(run, kind))

    def _unary(
        self, run: Callable[[Any, CallContext], Awaitable[Message]], kind: type[Message]
    ) -> Handler:
        async def handle(raw: bytes, context: Context) -> bytes:
            request_id = await _greet(context)
            try:
                with self._place():
                    call = self._open(context, request_id)
                    async with asyncio.timeout(call.remaining_s()):
                        response = await run(_read(kind, raw), call)
                return response.SerializeToString()
            except Exception as error:  # noqa: BLE001 - every error has a status
                await _abort(context, request_id, error)

        return handle

    def _stream(
        self,
        run: Callable[[Any, CallContext], AsyncGenerator[Message, None]],
        kind: type[Message],
    ) -> Handler:
        async def handle(raw: bytes, context: Context) -> None:
            request_id = await _greet(context)
            try:
                with self._place():
                    call = self._open(context, request_id)
                    async with aclosing(run(_read(kind, raw), call)) as responses:
                        async for response in responses:
                            await self._write(context, response)
            except Exception as error:  # noqa: BLE001
                await _abort(context, request_id, error)

        return handle

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self.num_open >= self._max_concurrent:
            raise QueueFullError(f"{self.num_open} calls are open, the most; try again later")
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1

    def _open(self, context: Context, request_id: str) -> CallContext:
        metadata = text_metadata(context.invocation_metadata())
        return call_context(metadata, request_id, context.time_remaining(), self._auth)

    async def _write(self, context: Context, response: Message) -> None:
        """Waits for the client's flow control."""
        try:
            async with asyncio.timeout(self._stall_limit_s):
                await context.write(response.SerializeToString())
        except TimeoutError:
            raise StalledClientError(
                f"the client took no message for {self._stall_limit_s:g} s"
            ) from None


async def _greet(context: Context) -> str:
    """Tells the client at once what its call is known by."""
    request_id = request_id_in(text_metadata(context.invocation_metadata()))
    await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
    context.set_trailing_metadata(trailers(request_id))
    return request_id


def _read(kind: type[Message], raw: bytes) -> Message:
    try:
        request = kind.FromString(raw)
    except DecodeError:
        raise InvalidRequestError(f"the request is no {kind.DESCRIPTOR.full_name}") from None
    refuse_unknown(request)
    return request


async def _abort(context: Context, request_id: str, error: Exception) -> NoReturn:
    if isinstance(error, TimeoutError):
        error = DeadlineExceededError("the deadline passed before the answer was complete")
    code = grpc.StatusCode[status_of(error).grpc]
    if code is grpc.StatusCode.INTERNAL:
        logger.error("call %s failed", request_id, exc_info=error)
    wait_s = STATUS_WAIT_S if isinstance(error, StalledClientError) else None
    try:
        async with asyncio.timeout(wait_s):
            await context.abort(code, message_of(error), trailers(request_id, error))
    except TimeoutError:
        raise asyncio.CancelledError from None  # the status follows whenever the client reads
    raise AssertionError("abort raises")
