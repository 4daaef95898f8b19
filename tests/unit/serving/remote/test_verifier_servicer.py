"""A call whose end comes while a response is being sent leaves nothing running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from whiflash.core.params import GenerationRequest
from whiflash.rpc.v1 import verifier_service_pb2 as pb
from whiflash.rpc.verifier_requests import request_message, seed_bytes
from whiflash.serving.remote.servicer import VerifierServicer
from whiflash.testing.backends import ScriptedBackend


class EndedContext:
    """A call that gRPC ends by its callbacks alone, as it does where a send never comes back."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)

    def end(self) -> None:
        for callback in self.callbacks:
            callback(self)


def message(servicer: VerifierServicer) -> pb.GenerateRequest:
    mine = servicer.description
    return pb.GenerateRequest(
        identity=mine.identity.message(),
        incarnation=mine.incarnation,
        request=request_message(GenerationRequest(tuple(range(40)))),
        seed=seed_bytes(5),
    )


def test_a_call_that_ends_while_it_sends_frees_its_slot_at_once() -> None:
    async def scenario() -> None:
        backend = ScriptedBackend("an answer of some length", round_s=0.005)
        servicer = VerifierServicer(backend, "characters")
        context: Any = EndedContext()
        responses = servicer.Generate(message(servicer), context)
        await anext(responses)  # and no more is asked for: the method stays suspended
        assert servicer.num_running == backend.running == 1
        context.end()
        async with asyncio.timeout(10):
            while servicer.num_running or backend.running:
                await asyncio.sleep(0.005)
        servicer.check_integrity()
        assert await servicer.drain(10.0)
        await responses.aclose()

    asyncio.run(scenario())
