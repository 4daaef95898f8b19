"""VerifierService over the engine of this process."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, NoReturn, cast

import grpc

from whiflash import __version__
from whiflash.core.errors import DrainingError, WhiFlashError
from whiflash.core.params import GenerationRequest
from whiflash.core.results import Completion, Delta
from whiflash.rpc.faults import MismatchError
from whiflash.rpc.v1 import verifier_service_pb2 as pb
from whiflash.rpc.v1.verifier_service_pb2_grpc import VerifierServiceServicer
from whiflash.rpc.verifier_events import ChoiceEnd, event_message
from whiflash.rpc.verifier_requests import read_request, read_seed
from whiflash.serving.backend import Backend
from whiflash.serving.remote.description import Description, Identity, VerifierState
from whiflash.serving.remote.faults import details, status_code, trailers

logger = logging.getLogger("whiflash.verifier")

Context = grpc.aio.ServicerContext[Any, Any]
SIGN_OF_LIFE_S = 0.2
INCARNATION_BYTES = 8


class VerifierServicer(VerifierServiceServicer):
    """Serves one backend, which it does not own. For one event loop.

    tokenizer: fingerprint of the backend's tokenizer.
    """

    def __init__(self, backend: Backend, tokenizer: str) -> None:
        model = backend.model
        identity = Identity(__version__, model.fingerprint, tokenizer)
        self.description = Description(identity, secrets.token_hex(INCARNATION_BYTES), model)
        self._backend = backend
        self._is_draining = False
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def num_running(self) -> int:
        """Requests of gateways that have not ended."""
        return len(self._calls)

    def state(self) -> VerifierState:
        is_ready = self._backend.is_ready and not self._is_draining
        return VerifierState(is_ready, self._is_draining, self._backend.load())

    async def Describe(  # noqa: N802
        self,
        request: pb.DescribeRequest,
        context: Context,
    ) -> pb.DescribeResponse:
        if request.version != __version__:
            await _refuse(context, _other_version(request.version))
        return self.description.message()

    async def Watch(  # noqa: N802
        self,
        request: pb.WatchRequest,
        context: Context,
    ) -> AsyncIterator[pb.WatchResponse]:
        """Until the caller leaves, or the server stops."""
        if request.incarnation != self.description.incarnation:
            await _refuse(context, self._other_incarnation(request.incarnation))
        while True:
            yield self.state().message()
            await asyncio.sleep(SIGN_OF_LIFE_S)

    async def Generate(  # noqa: N802
        self,
        request: pb.GenerateRequest,
        context: Context,
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Cancelling the call cancels the request."""
        events: asyncio.Queue[Delta | ChoiceEnd | Exception | None] = asyncio.Queue()
        pump: asyncio.Task[None] | None = None
        try:
            self._check(request)
            prepared, seed = read_request(request.request), read_seed(request.seed)
            pump = asyncio.create_task(self._pump(prepared, seed, events))
            self._calls.add(pump)
            async for response in _frames(events):
                yield response
        except Exception as error:  # noqa: BLE001 - every error has a status
            await _refuse(context, error)
        finally:
            if pump is not None:
                pump.cancel()
                await asyncio.wait([pump])
                self._calls.discard(pump)

    async def Plan(  # noqa: N802
        self,
        request: pb.PlanRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.PlanResponse:
        return pb.PlanResponse(json=json.dumps(self._backend.plan()))

    async def Drain(  # noqa: N802
        self,
        request: pb.DrainRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.DrainResponse:
        return pb.DrainResponse(all_ended=await self.drain(request.timeout_s))

    async def drain(self, timeout_s: float) -> bool:
        """Takes nothing new from now on; calls that have not ended after `timeout_s` are cut with
        DrainingError, so that gateways move them. True if none was. Idempotent."""
        self._is_draining = True
        end_s = time.monotonic() + timeout_s
        while self._calls and time.monotonic() < end_s:
            await asyncio.wait(self._calls, timeout=end_s - time.monotonic())
            await asyncio.sleep(0)
        cut = [call for call in self._calls if not call.done()]
        for call in cut:
            call.cancel()
        if cut:
            await asyncio.wait(cut)
        return not cut

    async def _pump(
        self,
        request: GenerationRequest,
        seed: int,
        events: asyncio.Queue[Delta | ChoiceEnd | Exception | None],
    ) -> None:
        run = cast("AsyncGenerator[Delta | Completion, None]", self._backend.run(request, seed))
        try:
            async with aclosing(run) as source:
                async for event in source:
                    if isinstance(event, Completion):
                        events.put_nowait(ChoiceEnd.of(event))
                    else:
                        events.put_nowait(event)
            events.put_nowait(None)
        except asyncio.CancelledError:
            events.put_nowait(DrainingError("the verifier is leaving; go on at another one"))
            raise
        except Exception as error:  # noqa: BLE001 - told to the caller
            events.put_nowait(error)

    def _check(self, request: pb.GenerateRequest) -> None:
        mine = self.description
        if request.identity.version != __version__:
            raise _other_version(request.identity.version)
        if request.incarnation != mine.incarnation:
            raise self._other_incarnation(request.incarnation)
        differences = mine.identity.differences(Identity.read(request.identity))
        if differences:
            raise MismatchError(f"the verifier has {differences}; ask another one")
        if not self.state().is_ready:
            raise DrainingError("the verifier takes no new requests; ask another one")

    def _other_incarnation(self, theirs: str) -> MismatchError:
        return MismatchError(
            f"incarnation {theirs!r} is gone, this is {self.description.incarnation!r}; "
            "describe it again"
        )

    def check_integrity(self) -> None:
        assert all(not call.done() for call in self._calls), "an ended call was kept"


def _other_version(theirs: str) -> MismatchError:
    return MismatchError(f"the gateway has version {theirs}, the verifier {__version__}")


async def _frames(
    events: asyncio.Queue[Delta | ChoiceEnd | Exception | None],
) -> AsyncIterator[pb.GenerateResponse]:
    """Everything that is at hand in one message. Raises the request's error."""
    while True:
        batch = [await events.get()]
        while not events.empty():
            batch.append(events.get_nowait())
        sound = [e for e in batch if isinstance(e, Delta | ChoiceEnd)]
        if sound:
            yield pb.GenerateResponse(events=[event_message(event) for event in sound])
        last = batch[-1]
        if last is None:
            return
        if isinstance(last, Exception):
            raise last


async def _refuse(context: Context, error: Exception) -> NoReturn:
    if not isinstance(error, WhiFlashError):
        logger.error("a request failed", exc_info=error)
    await context.abort(status_code(error), details(error), trailers(error))
    raise AssertionError("abort raises")
