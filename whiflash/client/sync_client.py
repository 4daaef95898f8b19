"""The client for plain threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc

from whiflash.api.v1 import generation_service_pb2 as pb
from whiflash.api.v1 import model_service_pb2
from whiflash.api.v1.generation_service_pb2_grpc import GenerationServiceStub
from whiflash.api.v1.model_service_pb2_grpc import ModelServiceStub
from whiflash.client.connection import CHANNEL_OPTIONS, DEFAULT_TARGET, CallFrame, CallSettings
from whiflash.client.errors import failure_of
from whiflash.client.options import CallOptions, Prompt, call_message, prompt_message
from whiflash.client.plan import read_plan
from whiflash.client.resumption import Backoff, Resumption, StreamEvent, fix_seed
from whiflash.client.store import StoreCalls

T = TypeVar("T")


class Client:
    """One server; thread-safe. Use it as a context manager, or close it.

    api_key:     sent as `authorization: Bearer`.
    max_retries: attempts in a row, without anything new, before an unreachable server is given up.
    credentials: for TLS; None speaks plain HTTP/2.
    store:       the server's trajectories, for a key with scope store.

        with Client() as client:
            print(client.generate("Once upon", max_tokens=20).choices[0].text)
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        api_key: str | None = None,
        max_retries: int = 8,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._api_key = api_key
        self._max_retries = max_retries
        self._channel = (
            grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
            if credentials is None
            else grpc.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
        )
        self._generation = GenerationServiceStub(self._channel)
        self._model = ModelServiceStub(self._channel)
        self.store = StoreCalls(self._channel, self._unary, self._frame)

    def stream(
        self, prompt: Prompt, settings: CallSettings | None = None, **options: Unpack[CallOptions]
    ) -> Generator[StreamEvent, None, None]:
        """Events as the answer is written. A broken connection is resumed; the caller sees one
        stream. Closing the generator cancels the call. Raises CallError."""
        frame = self._frame(settings)
        run, backoff = Resumption(call_message(prompt, options)), Backoff(self._max_retries)
        while True:
            call = self._generation.Generate(
                run.request(), metadata=frame.metadata, timeout=frame.remaining_s()
            )
            try:
                for response in call:
                    event = run.take(response)
                    if event is not None:
                        backoff.progressed()
                        yield event
                failure = run.broken()
            except grpc.RpcError as error:
                failure = failure_of(error)
            finally:
                call.cancel()
            if run.is_done:
                return
            time.sleep(frame.clip_s(backoff.wait_s(failure)))

    def generate(
        self, prompt: Prompt, settings: CallSettings | None = None, **options: Unpack[CallOptions]
    ) -> pb.GenerateOnceResponse:
        """The whole answer. Raises CallError."""
        call = call_message(prompt, options)
        fix_seed(call)
        request = pb.GenerateOnceRequest(call=call)
        return self._unary(self._generation.GenerateOnce, request, settings)

    def cancel(self, request_id: str, settings: CallSettings | None = None) -> None:
        """Ends the running calls of that id. Raises NotFoundError if there is none."""
        request = pb.CancelRequest(request_id=request_id)
        self._unary(self._generation.Cancel, request, settings)

    def tokenize(self, prompt: Prompt, settings: CallSettings | None = None) -> list[int]:
        """The ids that the prompt would have."""
        request = pb.TokenizeRequest(prompt=prompt_message(prompt))
        return list(self._unary(self._generation.Tokenize, request, settings).token_ids)

    def plan(self, settings: CallSettings | None = None) -> dict[str, Any]:
        """What the server resolved at start and measured. Needs scope admin."""
        request = model_service_pb2.GetPlanRequest()
        return read_plan(self._unary(self._model.GetPlan, request, settings))

    def arms(self, settings: CallSettings | None = None) -> list[str]:
        """Drafters that a call may pin."""
        request = model_service_pb2.ListArmsRequest()
        return [arm.name for arm in self._unary(self._model.ListArms, request, settings).arms]

    def limits(self, settings: CallSettings | None = None) -> model_service_pb2.GetLimitsResponse:
        """The model, and the limits of a call."""
        return self._unary(self._model.GetLimits, model_service_pb2.GetLimitsRequest(), settings)

    def load(self, settings: CallSettings | None = None) -> model_service_pb2.GetLoadResponse:
        """How busy the server is."""
        return self._unary(self._model.GetLoad, model_service_pb2.GetLoadRequest(), settings)

    def close(self) -> None:
        """Ends open calls. Idempotent."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _frame(self, settings: CallSettings | None) -> CallFrame:
        return CallFrame(self._api_key, settings or CallSettings())

    def _unary(self, method: Callable[..., T], request: object, settings: CallSettings | None) -> T:
        frame, backoff = self._frame(settings), Backoff(self._max_retries)
        while True:
            try:
                return method(request, metadata=frame.metadata, timeout=frame.remaining_s())
            except grpc.RpcError as error:
                failure = failure_of(error)
            time.sleep(frame.clip_s(backoff.wait_s(failure)))
