"""The caller's end of a request: deltas while it runs, completions at the end, cancellation."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator

from whiflash.core.errors import EngineClosedError, WhiFlashError
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import CompiledConstraint
from whiflash.core.results import Completion, Delta, Generation

logger = logging.getLogger(__name__)

Event = Delta | Completion | WhiFlashError


class Ticket:
    """Handed out by `Engine.submit`. Events of all choices arrive at `sink` in order, from the
    engine's thread: deltas, then one Completion per choice; a WhiFlashError ends the request.

    grammar: the request's constraint, compiled before the engine's thread sees the ticket.
    """

    def __init__(
        self,
        request: GenerationRequest,
        seed: int,
        sink: Callable[[Event], None] | None = None,
        grammar: CompiledConstraint | None = None,
    ) -> None:
        self.request = request
        self.seed = seed
        self.grammar = grammar
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._sink = sink or self._events.put
        self._completions: dict[int, Completion] = {}
        self._error: WhiFlashError | None = None
        self._done = threading.Event()
        self._cancelled = threading.Event()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ends the request within one step; choices finish with reason `cancelled`. Idempotent."""
        self._cancelled.set()

    def emit(self, delta: Delta) -> None:
        """Engine side."""
        self._deliver(delta)

    def _deliver(self, event: Event) -> None:
        """A caller whose sink fails (its event loop is gone) has left: the request is cancelled
        and the engine goes on."""
        try:
            self._sink(event)
        except Exception:
            logger.warning("a request's sink failed; the request is cancelled", exc_info=True)
            self._cancelled.set()

    def complete(self, completion: Completion) -> None:
        """Engine side: one choice is done."""
        self._completions[completion.index] = completion
        if len(self._completions) == self.request.params.n:
            self._done.set()
        self._deliver(completion)

    def fail(self, error: WhiFlashError) -> None:
        """Engine side: the request cannot go on."""
        if not self._done.is_set():
            self._error = error
            self._done.set()
            self._deliver(error)

    def deltas(self) -> Iterator[Delta]:
        """Blocks for deltas until all choices are done. Only for tickets without a sink."""
        open_choices = self.request.params.n
        while open_choices:
            event = self._events.get()
            if isinstance(event, WhiFlashError):
                raise event
            if isinstance(event, Delta):
                yield event
            else:
                open_choices -= 1

    def result(self, timeout_s: float | None = None) -> Generation:
        """Waits for all choices. Raises the request's error, or TimeoutError."""
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"the request did not finish within {timeout_s} s")
        if self._error is not None:
            raise self._error
        if len(self._completions) != self.request.params.n:
            raise EngineClosedError("the engine was closed before the request finished")
        choices = tuple(self._completions[i] for i in range(self.request.params.n))
        return Generation(self.request.prompt_ids, choices)
