"""The embedded engine: `from whiflash import Engine`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from collections.abc import Sequence as Rows
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from whiflash.config import EngineConfig
from whiflash.core.errors import EngineClosedError, InvalidRequestError, WhiFlashError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import CompiledConstraint, ConstraintCompiler, TargetInfo
from whiflash.core.results import Completion, Delta, Generation
from whiflash.engine.build import EngineParts, build_parts
from whiflash.engine.core import EngineCore, EngineLimits
from whiflash.engine.outside import OutsideParts
from whiflash.engine.plan import describe
from whiflash.engine.store import EngineStore
from whiflash.engine.thread import EngineThread
from whiflash.engine.ticket import Event, Ticket
from whiflash.models.tokenizer import HFTokenizer

Prompt = str | Rows[int]
MakeCompiler = Callable[[HFTokenizer, TargetInfo], ConstraintCompiler]


class Engine:
    """One model in this process. Thread-safe; close it, or use it as a context manager.

    `constraints` makes the compiler of structured output (whiflash.chat.constraints); requests
    with a constraint are refused without it. `outside` has parts that run in other processes.
    `overrides` are fields of EngineConfig. Raises
    ConfigError, ModelError or UnsupportedModelError when it cannot be built.

        with Engine() as engine:
            print(engine.generate("Hello", SamplingParams(max_tokens=20)).text)
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        constraints: MakeCompiler | None = None,
        outside: OutsideParts | None = None,
        **overrides: Any,
    ) -> None:
        given = config.model_dump(exclude_unset=True) if config is not None else {}
        resolved = EngineConfig.of(**{**given, **overrides})
        self._thread = EngineThread(lambda: build_parts(resolved, outside))
        self._parts: EngineParts = self._thread.parts
        self._is_closed = False
        self._compiler: ConstraintCompiler | None = None
        if constraints is not None:
            try:
                self._compiler = constraints(self._parts.tokenizer, self._parts.target.info)
            except BaseException:
                self._thread.close()
                raise

    @property
    def config(self) -> EngineConfig:
        return self._parts.config

    @property
    def core(self) -> EngineCore:
        """The loop itself, for counters and tests; only its own thread may step it."""
        return self._parts.core

    @property
    def tokenizer(self) -> HFTokenizer:
        return self._parts.tokenizer

    @property
    def model_folder(self) -> Path:
        """Where the model's files lie; chat templates are looked up there."""
        return self._parts.folder

    @property
    def model_name(self) -> str:
        return self._parts.config.model

    @property
    def limits(self) -> EngineLimits:
        """Sizes that the loop keeps to."""
        return self._parts.limits

    @property
    def has_constraints(self) -> bool:
        """Requests may demand a form of their answer."""
        return self._compiler is not None

    @property
    def is_running(self) -> bool:
        """False once it was closed, or its loop stopped after an internal error."""
        return self._thread.is_running

    def plan(self) -> dict[str, Any]:
        """What was resolved at start, as JSON-able values: target, arms, policy, limits, costs."""
        return describe(self._parts)

    def request(
        self, prompt: Prompt, params: SamplingParams | None = None, **fields: Any
    ) -> GenerationRequest:
        """A request from text or ids. `fields` are GenerationRequest's, and `prediction` as text.
        Raises InvalidRequestError on unknown fields."""
        prediction = fields.pop("prediction", None)
        if prediction is not None:
            fields["prediction_ids"] = tuple(self.tokenizer.encode(prediction))
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        try:
            return GenerationRequest(tuple(ids), params or SamplingParams(), **fields)
        except TypeError as error:
            raise InvalidRequestError(f"unknown request field: {error}") from None

    @property
    def store(self) -> EngineStore:
        """The trajectories: their log, their namespaces."""
        return self._parts.store

    def _scoped(self, request: GenerationRequest) -> GenerationRequest:
        """With the namespace that its plain name stands for."""
        if not request.namespace:
            return request  # the intake refuses it
        return replace(request, namespace=self.store.namespace(request.namespace))

    def submit(self, request: GenerationRequest) -> Ticket:
        """Queues a request; its errors arrive through the ticket. A constraint is compiled here,
        on the caller's thread, which takes up to seconds the first time."""
        ticket = Ticket(self._scoped(request), _seed_of(request))
        try:
            ticket.grammar = self._compile(request)
        except WhiFlashError as error:
            ticket.fail(error)
            return ticket
        self._thread.submit(ticket)
        return ticket

    def _compile(self, request: GenerationRequest) -> CompiledConstraint | None:
        if request.constraint is None or self._compiler is None:
            return None  # without a compiler the intake refuses the request by name
        return self._compiler.compile(request.constraint)

    def generate(
        self, prompt: Prompt, params: SamplingParams | None = None, **fields: Any
    ) -> Generation:
        """Blocks until the answer is complete. Raises the request's WhiFlashError."""
        return self.submit(self.request(prompt, params, **fields)).result()

    def generate_batch(
        self, prompts: Rows[Prompt], params: SamplingParams | None = None, **fields: Any
    ) -> list[Generation]:
        """Runs all prompts together; results in the order of the prompts."""
        tickets = [self.submit(self.request(prompt, params, **fields)) for prompt in prompts]
        return [ticket.result() for ticket in tickets]

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, **fields: Any
    ) -> Iterator[Delta]:
        """Deltas as rounds finish. Closing the iterator early cancels the request."""
        ticket = self.submit(self.request(prompt, params, **fields))
        try:
            yield from ticket.deltas()
        finally:
            ticket.cancel()

    async def agenerate(
        self, prompt: Prompt, params: SamplingParams | None = None, **fields: Any
    ) -> Generation:
        """As `generate`; cancelling the task cancels the request."""
        request = self.request(prompt, params, **fields)
        choices = [e async for e in self.events(request) if isinstance(e, Completion)]
        return Generation(request.prompt_ids, tuple(sorted(choices, key=lambda c: c.index)))

    async def astream(
        self, prompt: Prompt, params: SamplingParams | None = None, **fields: Any
    ) -> AsyncIterator[Delta]:
        """As `stream`."""
        async for event in self.events(self.request(prompt, params, **fields)):
            if isinstance(event, Delta):
                yield event

    async def events(
        self, request: GenerationRequest, seed: int | None = None
    ) -> AsyncGenerator[Delta | Completion, None]:
        """Deltas and completions of all choices as they come. `seed` stands in for a missing one
        in the parameters. Closing the iterator, or cancelling its task, cancels the request."""
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[Event] = asyncio.Queue()

        def sink(event: Event) -> None:
            loop.call_soon_threadsafe(inbox.put_nowait, event)

        drawn = seed if seed is not None and request.params.seed is None else _seed_of(request)
        grammar = None
        if request.constraint is not None:
            grammar = await asyncio.to_thread(self._compile, request)
        ticket = Ticket(self._scoped(request), drawn, sink, grammar)
        self._thread.submit(ticket)
        open_choices = request.params.n
        try:
            while open_choices:
                event = await inbox.get()
                if isinstance(event, WhiFlashError):
                    raise event
                open_choices -= isinstance(event, Completion)
                yield event
        finally:
            ticket.cancel()

    def close(self) -> None:
        """Fails what is still open and frees the memory. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.close()
            if self._compiler is not None:
                self._compiler.close()

    def __enter__(self) -> Self:
        if self._is_closed:
            raise EngineClosedError("the engine is closed; make a new one")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _seed_of(request: GenerationRequest) -> int:
    seed = request.params.seed
    return secrets.randbits(128) if seed is None else seed
