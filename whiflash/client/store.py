"""The server's trajectory store through a client: `client.store`. Needs scope store."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

import grpc
from grpc import aio

from whiflash.api.v1 import trajectory_service_pb2 as pb
from whiflash.api.v1.trajectory_service_pb2_grpc import TrajectoryServiceStub
from whiflash.client.connection import CallFrame, CallSettings
from whiflash.client.errors import failure_of

T = TypeVar("T")


class _Messages(TypedDict):
    messages: Sequence[Mapping[str, Any]]


class Recording(_Messages, total=False):
    """A recorded run: OpenAI-shaped messages, tools, and labels. Without a run_id it gets one that
    follows from the messages."""

    tools: Sequence[Mapping[str, Any]]
    run_id: str
    agent: str
    subject: str
    model: str


Run = Recording | Mapping[str, Any]
"""A recording, or a turn as `export` gives it."""


def run_message(run: Run) -> pb.Run:
    """Raises TypeError on a field that a recording has no place for."""
    given = dict(run)
    if "tokens" in given:
        return pb.Run(stored_turn_json=json.dumps(given))
    unknown = given.keys() - Recording.__annotations__.keys() - _Messages.__annotations__.keys()
    if unknown:
        raise TypeError(f"no such field of a recording: {min(unknown)}")
    messages, tools = given.pop("messages"), given.pop("tools", None)
    return pb.Run(
        recording=pb.Recording(
            messages_json=json.dumps(list(messages)),
            tools_json=json.dumps(list(tools)) if tools else "",
            **given,
        )
    )


class StoreCalls:
    """For plain threads."""

    def __init__(
        self,
        channel: grpc.Channel,
        unary: Callable[..., Any],
        frame: Callable[[CallSettings | None], CallFrame],
    ) -> None:
        self._stub = TrajectoryServiceStub(channel)
        self._unary = unary
        self._frame = frame

    def add(self, runs: Iterable[Run], settings: CallSettings | None = None) -> pb.ImportResponse:
        """Adds runs; those that were there before are not added twice. Keep a call within the
        server's max_request_bytes."""
        request = pb.ImportRequest(runs=[run_message(run) for run in runs])
        response: pb.ImportResponse = self._unary(self._stub.Import, request, settings)
        return response

    def export(self, settings: CallSettings | None = None) -> Generator[dict[str, Any], None, None]:
        """Every stored turn of the caller's project. Raises CallError."""
        frame = self._frame(settings)
        call = self._stub.Export(
            pb.ExportRequest(), metadata=frame.metadata, timeout=frame.remaining_s()
        )
        try:
            for response in call:
                yield from map(json.loads, response.stored_turn_json)
        except grpc.RpcError as error:
            raise failure_of(error).error from None
        finally:
            call.cancel()

    def stats(
        self, *, whole_tenant: bool = False, settings: CallSettings | None = None
    ) -> list[pb.NamespaceStats]:
        """By namespace; `whole_tenant` needs scope admin."""
        request = pb.GetStatsRequest(whole_tenant=whole_tenant)
        return list(self._unary(self._stub.GetStats, request, settings).namespaces)

    def delete(self, settings: CallSettings | None = None, **what: Any) -> pb.DeleteResponse:
        """One of run_id="...", subject="...", whole_project=True, whole_tenant=True (scope admin).
        num_turns of the response is 0 where nothing was found: that is no error, as a call may
        have to be repeated."""
        request = pb.DeleteRequest(**what)
        response: pb.DeleteResponse = self._unary(self._stub.Delete, request, settings)
        return response


class AsyncStoreCalls:
    """For asyncio; the methods of StoreCalls."""

    def __init__(
        self,
        channel: aio.Channel,
        unary: Callable[..., Any],
        frame: Callable[[CallSettings | None], CallFrame],
    ) -> None:
        self._stub = TrajectoryServiceStub(channel)
        self._unary = unary
        self._frame = frame

    async def add(
        self, runs: Iterable[Run], settings: CallSettings | None = None
    ) -> pb.ImportResponse:
        request = pb.ImportRequest(runs=[run_message(run) for run in runs])
        response: pb.ImportResponse = await self._unary(self._stub.Import, request, settings)
        return response

    async def export(
        self, settings: CallSettings | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        frame = self._frame(settings)
        call = self._stub.Export(
            pb.ExportRequest(), metadata=frame.metadata, timeout=frame.remaining_s()
        )
        try:
            async for response in call:
                for text in response.stored_turn_json:
                    yield json.loads(text)
        except aio.AioRpcError as error:
            raise failure_of(error).error from None
        finally:
            call.cancel()

    async def stats(
        self, *, whole_tenant: bool = False, settings: CallSettings | None = None
    ) -> list[pb.NamespaceStats]:
        request = pb.GetStatsRequest(whole_tenant=whole_tenant)
        return list((await self._unary(self._stub.GetStats, request, settings)).namespaces)

    async def delete(self, settings: CallSettings | None = None, **what: Any) -> pb.DeleteResponse:
        request = pb.DeleteRequest(**what)
        response: pb.DeleteResponse = await self._unary(self._stub.Delete, request, settings)
        return response
