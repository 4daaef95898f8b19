"""A call whose end comes while a response is being sent leaves nothing running."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc

from whiflash.core.params import GenerationRequest
from whiflash.rpc.access import Access
from whiflash.rpc.interceptors import ServerInterceptor
from whiflash.rpc.sealed import Frame
from whiflash.rpc.v1 import verifier_service_pb2 as pb
from whiflash.rpc.verifier_requests import request_message, seed_bytes
from whiflash.serving.remote.servicer import VerifierServicer
from whiflash.testing.backends import ScriptedBackend


class FullContext:
    """Of a client that takes nothing more: a send does not come back."""

    def __init__(self) -> None:
        self.is_sending = asyncio.Event()

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def write(self, _: object) -> None:
        self.is_sending.set()
        await asyncio.Event().wait()


class Details(grpc.HandlerCallDetails):
    method = "/whiflash.rpc.v1.VerifierService/Generate"
    invocation_metadata = None


def message(servicer: VerifierServicer) -> pb.GenerateRequest:
    mine = servicer.description
    return pb.GenerateRequest(
        identity=mine.identity.message(),
        incarnation=mine.incarnation,
        request=request_message(GenerationRequest(tuple(range(40)))),
        seed=seed_bytes(5),
    )


async def served(servicer: VerifierServicer) -> Any:
    """The method as our servers run it."""

    async def own(_: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_stream_rpc_method_handler(servicer.Generate)

    return await ServerInterceptor(Access()).intercept_service(own, cast("Any", Details()))


def test_a_call_that_ends_while_it_sends_frees_its_slot_at_once() -> None:
    async def scenario() -> None:
        backend = ScriptedBackend("an answer of some length", round_s=0.005)
        servicer, context = VerifierServicer(backend, "characters"), FullContext()
        handler = await served(servicer)
        call = asyncio.ensure_future(handler.unary_stream(Frame(0, message(servicer)), context))
        await asyncio.wait_for(context.is_sending.wait(), 10)
        assert servicer.num_running == backend.running == 1
        call.cancel()  # as grpcio does when the client is gone
        async with asyncio.timeout(10):
            await asyncio.wait([call])
            while servicer.num_running or backend.running:
                await asyncio.sleep(0.005)
        servicer.check_integrity()
        assert await servicer.drain(10.0)

    asyncio.run(scenario())
