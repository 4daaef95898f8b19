"""A channel to one of our own processes, whose frames are sealed (sealed.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, cast

import grpc

from whiflash.rpc.sealed import Frame, checked, numbered, only_message, seal, unseal

Serialize = Callable[[Any], bytes]
Parse = Callable[[bytes], Any]


class SealedChannel:
    """What generated stubs and their owners use of a grpc.aio.Channel, which it owns. Calls raise
    DamagedError, beside AioRpcError."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel: Any = channel

    @property
    def for_stubs(self) -> grpc.aio.Channel:
        """Itself, as generated stubs declare what they take."""
        return cast("grpc.aio.Channel", self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends open calls. Idempotent."""
        await self._channel.close()

    def unary_unary(
        self, method: str, request_serializer: Serialize, response_deserializer: Parse, **more: Any
    ) -> Callable[..., Any]:
        """As grpc.aio.Channel; so are the two below."""
        send = self._channel.unary_unary(
            method, seal(request_serializer), unseal(response_deserializer), **more
        )

        async def call(request: Any, **options: Any) -> Any:
            return only_message(await send(Frame(0, request), **options))

        return call

    def unary_stream(
        self, method: str, request_serializer: Serialize, response_deserializer: Parse, **more: Any
    ) -> Callable[..., Any]:
        send = self._channel.unary_stream(
            method, seal(request_serializer), unseal(response_deserializer), **more
        )
        return lambda request, **options: SealedCall(send(Frame(0, request), **options))

    def stream_stream(
        self, method: str, request_serializer: Serialize, response_deserializer: Parse, **more: Any
    ) -> Callable[..., Any]:
        send = self._channel.stream_stream(
            method, seal(request_serializer), unseal(response_deserializer), **more
        )
        return lambda requests, **options: SealedCall(send(numbered(requests), **options))


class SealedCall:
    """A running call, to be iterated over once."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._messages = checked(call)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._messages

    def cancel(self) -> bool:
        """Idempotent."""
        return bool(self._call.cancel())
