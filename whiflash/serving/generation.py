"""Generation as all front ends call it: who may, how, for how long, and what came of it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from whiflash.core.errors import DrainingError, NotFoundError, WhiFlashError
from whiflash.obs.engine_metrics import EngineCollector, EngineState
from whiflash.serving.auth import Authenticator, require
from whiflash.serving.backend import Backend, Load, ServedModel
from whiflash.serving.call import GenerationCall, Prompt
from whiflash.serving.caller import CallContext, Caller, Scope
from whiflash.serving.fair_queue import FairQueue
from whiflash.serving.flight import Flight
from whiflash.serving.idempotency import IdempotencyBook
from whiflash.serving.prompts import PreparedPrompt, prepare_prompt
from whiflash.serving.requests import check_call
from whiflash.serving.runner import CallRunner
from whiflash.serving.stream import CallResult, Ended, Started, StreamEvent
from whiflash.serving.telemetry import Telemetry

_SEED_BITS = 128


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """max_waiting, max_tenant_waiting: calls in the queue, of all and of one tenant. queued_s:
    seconds between the signs of life of a call that waits."""

    max_waiting: int = 256
    max_tenant_waiting: int = 128
    queued_s: float = 5.0


class GenerationService:
    """One backend behind keys, limits, a fair queue, idempotency and metrics.

    All methods belong to one event loop, and so does the service once the first was called.
    """

    def __init__(
        self,
        backend: Backend,
        auth: Authenticator | None = None,
        limits: ServiceLimits | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.auth = auth or Authenticator()
        self.telemetry = telemetry or Telemetry()
        self._backend = backend
        self._limits = limits or ServiceLimits()
        model = backend.model
        self.queue = FairQueue(
            model.slots, model.kv_tokens, self._limits.max_waiting, self._limits.max_tenant_waiting
        )
        self._runner = CallRunner(backend, self.auth, self.queue, self.telemetry)
        self._keyed = IdempotencyBook()
        self._flights: dict[tuple[str, str, str], set[Flight]] = {}
        self._is_draining = False
        self.telemetry.metrics.registry.register(EngineCollector(self._state))

    # What is served

    @property
    def model(self) -> ServedModel:
        return self._backend.model

    @property
    def is_ready(self) -> bool:
        """New calls are welcome."""
        return self._backend.is_ready and not self._is_draining

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    def load(self) -> Load:
        """As the backend's, with the calls that wait in front of it."""
        load = self._backend.load()
        return Load(
            load.running,
            load.waiting + self.queue.num_waiting,
            load.kv_bytes,
            load.kv_limit_bytes,
            load.tokens_per_s,
        )

    def plan(self) -> dict[str, Any]:
        """The resolved plan, JSON-able."""
        return self._backend.plan()

    def metrics_text(self, caller: Caller) -> bytes:
        """Prometheus text (obs.metrics.CONTENT_TYPE). Raises PermissionDeniedError without scope
        `debug`: numbers by arm tell what others have stored."""
        require(caller, Scope.DEBUG)
        return self.telemetry.metrics.text()

    # Calls

    async def stream(
        self, call: GenerationCall, context: CallContext
    ) -> AsyncGenerator[StreamEvent, None]:
        """`Queued` while it waits, `Started` once the backend took it, then `Piece`s and one
        `Ended` per choice.

        All that is wrong with the call is raised before `Started`. Closing the generator, or
        cancelling the task that reads it, cancels the call. Raises WhiFlashError; the table in
        serving/errors.py has the status of each.
        """
        try:
            flight = self._flight(call, context)
        except WhiFlashError as error:
            self.telemetry.begin(context).end(error)
            raise
        async with aclosing(flight.listen(context.deadline_s, self._limits.queued_s)) as events:
            async for event in events:
                yield event

    async def complete(self, call: GenerationCall, context: CallContext) -> CallResult:
        """The whole call at once; errors and cancellation as with `stream`."""
        started: Started | None = None
        choices: list[Ended] = []
        async with aclosing(self.stream(call, context)) as events:
            async for event in events:
                if isinstance(event, Started):
                    started = event
                elif isinstance(event, Ended):
                    choices.append(event)
        assert started is not None, "a call that ends well has started"
        choices.sort(key=lambda ended: ended.index)
        return CallResult(started.prompt_ids, started.seed, tuple(choices))

    def cancel(self, request_id: str, caller: Caller) -> None:
        """Ends the caller's running calls of that id; those who read them get
        RequestCancelledError. Raises NotFoundError if there is none in this tenant and project.
        """
        flights = self._flights.get((caller.tenant, caller.project, request_id))
        if not flights:
            raise NotFoundError(f"no request {request_id!r} is running", "request_id")
        for flight in tuple(flights):
            flight.cancel()

    async def prepare(self, prompt: Prompt, context: CallContext) -> PreparedPrompt:
        """The exact ids that a prompt becomes, for Tokenize. Raises as `stream` does."""
        require(context.caller, Scope.GENERATE)
        self._check_open()
        return await prepare_prompt(self._backend, prompt)

    # The end

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new calls from now on and lets the open ones end; those still open after
        `timeout_s` are cut with DrainingError. True if none was."""
        self._is_draining = True
        open_flights = [flight for group in self._flights.values() for flight in group]
        waits = [asyncio.ensure_future(flight.wait()) for flight in open_flights]
        if not waits:
            return True
        _, late = await asyncio.wait(waits, timeout=timeout_s)
        for flight in open_flights:
            flight.cancel(DrainingError("the server is shutting down; resume on another one"))
        if late:
            await asyncio.wait(late)
        return not any(isinstance(flight.failure, DrainingError) for flight in open_flights)

    def _flight(self, call: GenerationCall, context: CallContext) -> Flight:
        require(context.caller, Scope.GENERATE)
        self._check_open()
        check_call(call, self.model)
        seed = secrets.randbits(_SEED_BITS) if call.params.seed is None else call.params.seed
        if not call.idempotency_key:
            return self._launch(call, context, seed)
        entry = self._keyed.entry(context.caller, call, seed)
        if entry.flight is None or not entry.flight.is_joinable:
            entry.flight = self._launch(call, context, entry.seed, keeps_events=True)
        return entry.flight

    def _launch(
        self, call: GenerationCall, context: CallContext, seed: int, keeps_events: bool = False
    ) -> Flight:
        caller = context.caller
        key = (caller.tenant, caller.project, context.request_id)
        flight = Flight(self._runner.events(call, context, seed), keeps_events)
        self._flights.setdefault(key, set()).add(flight)
        flight.on_end(lambda: self._forget(key, flight))
        return flight

    def _forget(self, key: tuple[str, str, str], flight: Flight) -> None:
        self._flights[key].discard(flight)
        if not self._flights[key]:
            del self._flights[key]

    def _check_open(self) -> None:
        if self._is_draining:
            raise DrainingError("the server is shutting down; ask another one")
        if not self._backend.is_ready:
            raise DrainingError("the server is not ready; try again in a moment")

    def _state(self) -> EngineState:
        load = self._backend.load()
        gauges = {
            "engine_running": float(load.running),
            "engine_waiting": float(load.waiting),
            "queue_waiting": float(self.queue.num_waiting),
            "kv_bytes": float(load.kv_bytes),
            "kv_limit_bytes": float(load.kv_limit_bytes),
            "goodput_tokens_per_second": load.tokens_per_s,
        }
        return EngineState(gauges, self._backend.plan())

    def check_integrity(self) -> None:
        self.queue.check_integrity()
        self._runner.allowances.check_integrity()
        self._keyed.check_integrity()
        assert all(self._flights.values()), "an empty group of flights was kept"
