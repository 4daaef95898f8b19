"""Builds and runs an engine on one thread of its own; other threads only hand tickets over.

Loading happens there too: OpenMP keeps a team of workers per calling thread, and with a second
team on the same cores its workers no longer spin, which doubles the time of a small forward."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from whiflash.core.errors import EngineClosedError, WhiFlashError
from whiflash.engine.build import EngineParts
from whiflash.engine.ticket import Ticket

logger = logging.getLogger(__name__)

IDLE_WAIT_S = 0.5
"""How long an idle loop sleeps before it looks for cancelled waiters again."""

SPARE_WAIT_S = 0.05
"""How long nothing must have come before a shadow proposal is made, and before the next one."""


class EngineThread:
    """Owner of the parts while it is open. The constructor waits until they are built and raises
    what `build` raises."""

    def __init__(self, build: Callable[[], EngineParts]) -> None:
        self._build = build
        self._parts: EngineParts | None = None
        self._is_built: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._inbox: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="whiflash-engine", daemon=True)
        self._thread.start()
        build_error = self._is_built.get()
        if build_error is not None:
            self._thread.join()
            raise build_error

    @property
    def parts(self) -> EngineParts:
        assert self._parts is not None, "the constructor waits for the parts"
        return self._parts

    @property
    def is_running(self) -> bool:
        """Still takes tickets."""
        return not self._closed.is_set() and self._thread.is_alive()

    def submit(self, ticket: Ticket) -> None:
        """Raises EngineClosedError; the request's own errors arrive at the ticket."""
        if self._closed.is_set():
            raise EngineClosedError("the engine is closed; make a new one")
        self._inbox.put(ticket)

    def close(self) -> None:
        """Fails open requests and joins the thread. Idempotent."""
        self._closed.set()
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._parts = self._build()
        except BaseException as error:  # noqa: BLE001 - the constructor raises it
            self._is_built.put(error)
            return
        self._is_built.put(None)
        failure = self._loop(self._parts)
        self._parts.core.close(failure)
        self._refuse_rest(failure)
        self._parts.close()

    def _loop(self, parts: EngineParts) -> WhiFlashError | None:
        try:
            while not self._closed.is_set():
                has_come = self._take_inbox()
                if not parts.core.step() and not has_come:
                    parts.core.shadows.run_one()
        except Exception as error:
            logger.exception("the engine loop failed")
            self._closed.set()
            return EngineClosedError(f"the engine stopped after an internal error: {error}")
        return None

    def _wait_s(self) -> float:
        core = self.parts.core
        if core.has_work:
            return 0.0
        return SPARE_WAIT_S if core.shadows.has_work else IDLE_WAIT_S

    def _take_inbox(self) -> bool:
        """Everything that arrived, and whether anything did; waits for the first if there is
        nothing else to do."""
        wait_s, has_come = self._wait_s(), False
        while True:
            try:
                ticket = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            except queue.Empty:
                return has_come
            wait_s, has_come = 0.0, True
            if ticket is not None:
                self._accept(ticket)

    def _accept(self, ticket: Ticket) -> None:
        try:
            self.parts.core.submit(ticket)
        except WhiFlashError as error:
            ticket.fail(error)

    def _refuse_rest(self, failure: WhiFlashError | None) -> None:
        refusal = failure or EngineClosedError("the engine was closed before the request ran")
        while True:
            try:
                ticket = self._inbox.get_nowait()
            except queue.Empty:
                return
            if ticket is not None:
                ticket.fail(refusal)
