"""A way to one process of ours that is opened again after every loss."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

import grpc

from whiflash.core.errors import WhiFlashError
from whiflash.rpc.access import Access
from whiflash.rpc.channels import open_channel
from whiflash.rpc.faults import error_of
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.sealed_channel import SealedChannel
from whiflash.rpc.v1 import common_pb2

logger = logging.getLogger(__name__)
Frame = TypeVar("Frame")

SILENCE_S: Final = 2.0
"""An end without a word for so long is lost: links may swallow everything without an error."""

PING_S: Final = 0.4
OPEN_S: Final = 5.0
RETRY_S, MAX_RETRY_S = 0.1, 2.0


class KeptLink(ABC):
    """Lives on an RpcLoop; the engine's thread waits under `changed`.

    what: who is at the other end, in a word. is_up, problem: whether it can be used, or why not.
    """

    def __init__(self, what: str, loop: RpcLoop, address: str, access: Access | None) -> None:
        """Subclasses call `_begin` when they are complete."""
        self.address = address
        self.client = secrets.token_hex(8)
        self.is_up = False
        self.problem = "not reached yet"
        self.num_openings = 0
        self.changed = threading.Condition()
        self._what = what
        self._loop = loop
        self._access = access or Access()
        self._heard_s = 0.0
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _session(self, channel: SealedChannel) -> None:
        """From opening the streams to their end. Returns, or raises, when it is over."""

    def _begin(self) -> None:
        self._loop.run(self._start())

    async def _start(self) -> None:
        self._task = asyncio.create_task(self._keep_open())

    def close(self) -> None:
        """Ends the streams. Idempotent."""
        if self._task is not None:
            self._loop.run(self._stop(), 10.0)

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._down("closed")

    async def _keep_open(self) -> None:
        wait_s = RETRY_S
        while True:
            began_s = time.monotonic()
            try:
                async with open_channel(self.address, self._access) as channel:
                    await self._session(channel)
                problem = f"the {self._what} left"
            except grpc.aio.AioRpcError as failure:
                problem = str(error_of(failure))
            except (WhiFlashError, TimeoutError) as error:
                problem = str(error)
            except Exception as error:  # whatever it was, the next opening may be better
                logger.exception("the link to the %s at %s failed", self._what, self.address)
                problem = f"internal error: {error}"
            self._down(problem)
            if time.monotonic() - began_s > MAX_RETRY_S:
                wait_s = RETRY_S
            # Jitter: all verifiers have lost the process at the same moment.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.5))
            wait_s = min(2 * wait_s, MAX_RETRY_S)

    async def _ping(self, send: Callable[[common_pb2.Ping], None]) -> None:
        """Until the other end has been silent for SILENCE_S."""
        number = 0
        while time.monotonic() - self._heard_s < SILENCE_S:
            number += 1
            send(common_pb2.Ping(number=number))
            await asyncio.sleep(PING_S)

    def _down(self, problem: str) -> None:
        if self.is_up:
            logger.warning("%s at %s is lost: %s", self._what, self.address, problem)
        with self.changed:
            self.is_up, self.problem = False, problem
            self.changed.notify_all()


async def queued(queue: asyncio.Queue[Frame | None]) -> AsyncIterator[Frame]:
    """What is put in, up to None."""
    while (frame := await queue.get()) is not None:
        yield frame
