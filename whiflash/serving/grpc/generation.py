"""GenerationService of the public API."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from whiflash.api.v1 import generation_service_pb2 as pb
from whiflash.serving.caller import CallContext
from whiflash.serving.generation import GenerationService
from whiflash.serving.grpc.prompts import read_prompt
from whiflash.serving.grpc.requests import read_call
from whiflash.serving.grpc.responses import ResponseWriter
from whiflash.serving.stream import Started


class GenerationServicer:
    """The methods of the service, by their names in the proto. They raise WhiFlashError."""

    def __init__(self, service: GenerationService) -> None:
        self._service = service

    async def Generate(
        self, request: pb.GenerateRequest, call: CallContext
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        """Events as they come. Closing the generator cancels the call."""
        writer = ResponseWriter(call)
        asked = read_call(request.call)
        async with aclosing(self._service.stream(asked, call)) as events:
            async for event in events:
                yield writer.event(event)

    async def GenerateOnce(
        self, request: pb.GenerateOnceRequest, call: CallContext
    ) -> pb.GenerateOnceResponse:
        """Cancelling the task cancels the call."""
        writer = ResponseWriter(call)
        result = await self._service.complete(read_call(request.call), call)
        return pb.GenerateOnceResponse(
            started=writer.started(Started(result.prompt_ids, result.seed)),
            choices=[writer.choice(ended) for ended in result.choices],
        )

    async def Cancel(self, request: pb.CancelRequest, call: CallContext) -> pb.CancelResponse:
        """Within the caller's tenant and project."""
        self._service.cancel(request.request_id, call.caller)
        return pb.CancelResponse()

    async def Tokenize(self, request: pb.TokenizeRequest, call: CallContext) -> pb.TokenizeResponse:
        """Exact ids come back as they are."""
        prepared = await self._service.prepare(read_prompt(request.prompt), call)
        return pb.TokenizeResponse(token_ids=prepared.token_ids)
