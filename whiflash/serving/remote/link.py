"""A gateway's way to one verifier: who it is, whether it lives, and the requests that it runs."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator
from typing import Any

import grpc

from whiflash import __version__
from whiflash.core.errors import WhiFlashError
from whiflash.core.params import GenerationRequest
from whiflash.core.results import Delta
from whiflash.rpc.access import Access
from whiflash.rpc.channels import open_channel
from whiflash.rpc.faults import MismatchError
from whiflash.rpc.sealed_channel import SealedChannel
from whiflash.rpc.v1 import verifier_service_pb2 as pb
from whiflash.rpc.v1.verifier_service_pb2_grpc import VerifierServiceStub
from whiflash.rpc.verifier_events import ChoiceEnd, read_event
from whiflash.rpc.verifier_requests import request_message, seed_bytes
from whiflash.serving.remote.description import Description, VerifierState
from whiflash.serving.remote.faults import VerifierLostError, error_of
from whiflash.serving.remote.server import MAX_MESSAGE_BYTES

logger = logging.getLogger("whiflash.gateway")

SILENCE_S = 2.0
"""A verifier without a sign of life for so long is lost."""

DESCRIBE_S = 5.0
RETRY_S = 0.2
MAX_RETRY_S = 2.0
Inbox = asyncio.Queue[Delta | ChoiceEnd | WhiFlashError | None]


class VerifierLink:
    """Keeps in touch with the verifier at `address` from `open` to `close`; it may come, go and
    come back as another incarnation. For one event loop."""

    def __init__(self, address: str, access: Access | None = None) -> None:
        self.address = address
        self._access = access or Access()
        self._metadata = self._access.metadata()
        self.description: Description | None = None
        self.state: VerifierState | None = None
        self.problem = "not reached yet"
        self.changed = asyncio.Event()
        self._inboxes: set[Inbox] = set()
        self._channel: SealedChannel | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_live(self) -> bool:
        """It takes requests now."""
        return self.description is not None and self.state is not None and self.state.is_ready

    @property
    def num_running(self) -> int:
        """Requests that this gateway has there."""
        return len(self._inboxes)

    def open(self) -> None:
        """Begins to reach for it."""
        self._channel = open_channel(self.address, self._access, MAX_MESSAGE_BYTES)
        self._task = asyncio.create_task(self._keep_in_touch(self._stub()))

    async def close(self) -> None:
        """Requests that still run there are lost. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._lose("the gateway let go of it")
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()

    async def generate(
        self, request: GenerationRequest, seed: int
    ) -> AsyncGenerator[Delta | ChoiceEnd, None]:
        """Events as they come; closing the generator cancels the request. Raises the request's
        error, or VerifierLostError."""
        if self.description is None:
            raise VerifierLostError(f"the verifier at {self.address} is lost: {self.problem}")
        message = pb.GenerateRequest(
            identity=self.description.identity.message(),
            incarnation=self.description.incarnation,
            request=request_message(request),
            seed=seed_bytes(seed),
        )
        stub, inbox = self._stub(), Inbox()
        self._inboxes.add(inbox)
        pump = asyncio.create_task(self._pump(stub, message, inbox))
        try:
            while (event := await inbox.get()) is not None:
                if isinstance(event, WhiFlashError):
                    raise event
                yield event
        finally:
            self._inboxes.discard(inbox)
            pump.cancel()
            await asyncio.wait([pump])

    async def _pump(self, stub: Any, message: pb.GenerateRequest, inbox: Inbox) -> None:
        """Reads one call in a task of its own: cancelling a pending read would cancel the call,
        and a call that was cancelled looks like a task that was."""
        call = stub.Generate(message, metadata=self._metadata)
        try:
            async for response in call:
                for event in response.events:
                    inbox.put_nowait(read_event(event))
            inbox.put_nowait(None)
        except grpc.aio.AioRpcError as failure:
            inbox.put_nowait(error_of(failure))
        except (ValueError, WhiFlashError) as error:
            inbox.put_nowait(VerifierLostError(str(error)))
        except asyncio.CancelledError:
            inbox.put_nowait(VerifierLostError("the call was cancelled"))
            raise
        except Exception as error:  # whoever waits at the inbox must hear of it
            logger.exception("reading from verifier %s failed", self.address)
            inbox.put_nowait(VerifierLostError(f"internal error: {error}"))
        finally:
            call.cancel()

    async def plan(self) -> dict[str, Any]:
        """Its resolved plan. Raises VerifierLostError."""
        try:
            answer = await self._stub().Plan(
                pb.PlanRequest(), timeout=DESCRIBE_S, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as failure:
            raise error_of(failure) from None
        plan: dict[str, Any] = json.loads(answer.json)
        return plan

    def _stub(self) -> Any:
        if self._channel is None:
            raise VerifierLostError(f"the link to {self.address} is closed")
        return VerifierServiceStub(self._channel.for_stubs)

    async def _keep_in_touch(self, stub: Any) -> None:
        wait_s = RETRY_S
        while True:
            began_s = time.monotonic()
            try:
                await self._meet(stub)
            except grpc.aio.AioRpcError as failure:
                self._lose(str(error_of(failure)))
            except TimeoutError:
                self._lose(f"no sign of life for {SILENCE_S:g} s")
            except WhiFlashError as error:
                self._lose(str(error))
            except Exception as error:  # the next meeting may go better
                logger.exception("keeping in touch with verifier %s failed", self.address)
                self._lose(f"internal error: {error}")
            if time.monotonic() - began_s > MAX_RETRY_S:
                wait_s = RETRY_S
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_RETRY_S)

    async def _meet(self, stub: Any) -> None:
        """Gets to know it and listens to its signs of life until they stop."""
        asked = pb.DescribeRequest(version=__version__)
        description = Description.read(
            await stub.Describe(asked, timeout=DESCRIBE_S, metadata=self._metadata)
        )
        if description.identity.version != __version__:
            raise MismatchError(
                f"the verifier has version {description.identity.version}, the gateway "
                f"{__version__}"
            )
        watched = pb.WatchRequest(incarnation=description.incarnation)
        signs = stub.Watch(watched, metadata=self._metadata)
        reader = aiter(signs)
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    sign = await anext(reader, None)
                if sign is None:
                    raise TimeoutError
                self._note(description, VerifierState.read(sign))
        finally:
            signs.cancel()

    def _note(self, description: Description, state: VerifierState) -> None:
        was_live = self.is_live
        self.description, self.state, self.problem = description, state, ""
        if self.is_live is not was_live:
            self.changed.set()

    def _lose(self, problem: str) -> None:
        if self.description is not None:
            logger.warning("verifier %s is lost: %s", self.address, problem)
        self.description, self.state, self.problem = None, None, problem
        for inbox in self._inboxes:
            inbox.put_nowait(VerifierLostError(f"the verifier at {self.address} is lost"))
        self.changed.set()

    def check_integrity(self) -> None:
        assert (self.description is None) == (self.state is None)
        assert self._channel is not None or not self._inboxes, "requests outlived the link"
