"""One running call and those who listen to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from whiflash.core.errors import DeadlineExceededError, RequestCancelledError
from whiflash.serving.stream import Piece, Queued, StreamEvent

Message = StreamEvent | BaseException | None
"""None is the end of the stream."""


class Flight:
    """Runs `source` in a task of its own and hands its events to every listener. When the last
    listener leaves, the task is cancelled; with `keeps_events` one that comes late, even after
    the end, hears everything from the start."""

    def __init__(self, source: AsyncIterator[StreamEvent], keeps_events: bool = False) -> None:
        self._listeners: set[asyncio.Queue[Message]] = set()
        self._history: list[Message] | None = [] if keeps_events else None
        self._reason: BaseException | None = None
        self._has_ended = False
        self.failure: BaseException | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(source))
        self._task.add_done_callback(self._end)

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def is_joinable(self) -> bool:
        """Whether a late listener would hear an answer: it runs, or ended well."""
        return self._history is not None and self.failure is None and self._reason is None

    async def listen(
        self, deadline_s: float | None, queued_s: float
    ) -> AsyncGenerator[StreamEvent, None]:
        """Events, and `Queued` every `queued_s` seconds until the first piece. `deadline_s` is a
        time.monotonic() value. Raises the call's error, or DeadlineExceededError."""
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        for message in self._history or ():
            inbox.put_nowait(message)
        if not self._has_ended:
            self._listeners.add(inbox)
        late: DeadlineExceededError | None = None
        try:
            async for event in _read(inbox, deadline_s, queued_s):
                yield event
        except DeadlineExceededError as error:
            late = error
            raise
        finally:
            self._listeners.discard(inbox)
            if not self._listeners:
                self.cancel(late)

    def on_end(self, action: Callable[[], None]) -> None:
        """Called when the call has ended and let go of everything."""
        self._task.add_done_callback(lambda _: action())

    def cancel(self, reason: BaseException | None = None) -> None:
        """Ends the call; who still listens hears `reason`. Idempotent."""
        if not self._has_ended and self._reason is None:
            self._reason = reason or RequestCancelledError("the request was cancelled")
            self._task.cancel(self._reason)

    async def wait(self) -> None:
        """Until the call has ended and let go of everything. Never raises its error."""
        await asyncio.wait([self._task])

    async def _run(self, source: AsyncIterator[StreamEvent]) -> None:
        async for event in source:
            self._tell(event)

    def _end(self, task: asyncio.Task[None]) -> None:
        """A callback, as a task that is cancelled before its first step never runs."""
        if task.cancelled():
            self.failure = self._reason or RequestCancelledError("the request was cancelled")
        else:
            self.failure = task.exception()
        self._has_ended = True
        self._tell(self.failure)
        self._listeners.clear()

    def _tell(self, message: Message) -> None:
        if self._history is not None:
            self._history.append(message)
        for inbox in self._listeners:
            inbox.put_nowait(message)


async def _read(
    inbox: asyncio.Queue[Message], deadline_s: float | None, queued_s: float
) -> AsyncGenerator[StreamEvent, None]:
    began_s = time.monotonic()
    is_waiting = True
    while True:
        patience_s = queued_s if is_waiting else None
        if deadline_s is not None:
            left_s = deadline_s - time.monotonic()
            patience_s = left_s if patience_s is None else min(left_s, patience_s)
        try:
            message = await _take(inbox, patience_s)
        except TimeoutError:
            if deadline_s is not None and time.monotonic() >= deadline_s:
                raise DeadlineExceededError(
                    "the deadline passed before the answer was complete"
                ) from None
            yield Queued(time.monotonic() - began_s)
            continue
        if message is None:
            return
        if isinstance(message, BaseException):
            raise message
        is_waiting = is_waiting and not isinstance(message, Piece)
        yield message


async def _take(inbox: asyncio.Queue[Message], patience_s: float | None) -> Message:
    if not inbox.empty():
        return inbox.get_nowait()
    if patience_s is None:
        return await inbox.get()
    async with asyncio.timeout(max(patience_s, 0.0)):
        return await inbox.get()
