"""Runs an EngineCore on a thread of its own; other threads only hand tickets over."""

from __future__ import annotations

import logging
import queue
import threading

from whiflash.core.errors import EngineClosedError, WhiFlashError
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket

logger = logging.getLogger(__name__)

IDLE_WAIT_S = 0.5
"""How long an idle loop sleeps before it looks for cancelled waiters again."""


class EngineThread:
    """Owner of the core while it is open."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._inbox: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="whiflash-engine", daemon=True)
        self._thread.start()

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
        failure: WhiFlashError | None = None
        try:
            while not self._closed.is_set():
                self._take_inbox()
                self._core.step()
        except Exception as error:
            logger.exception("the engine loop failed")
            failure = EngineClosedError(f"the engine stopped after an internal error: {error}")
            self._closed.set()
        self._core.close(failure)
        self._refuse_rest(failure)

    def _take_inbox(self) -> None:
        """Everything that arrived; waits for the first if there is nothing else to do."""
        wait_s = 0.0 if self._core.has_work else IDLE_WAIT_S
        while True:
            try:
                ticket = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            except queue.Empty:
                return
            wait_s = 0.0
            if ticket is not None:
                self._accept(ticket)

    def _accept(self, ticket: Ticket) -> None:
        try:
            self._core.submit(ticket)
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
