"""Runs one call from its arrival to its last event."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import cast

from whiflash.core.errors import DeadlineExceededError
from whiflash.core.params import GenerationRequest
from whiflash.core.results import Completion, Delta
from whiflash.serving.allowance import Allowances
from whiflash.serving.auth import Authenticator
from whiflash.serving.backend import Backend
from whiflash.serving.call import GenerationCall
from whiflash.serving.caller import CallContext
from whiflash.serving.choices import ChoiceStream, Delivered
from whiflash.serving.constraints import constraint_of, offers_calls
from whiflash.serving.fair_queue import FairQueue, Place
from whiflash.serving.prompts import PreparedPrompt, encode_text, prepare_prompt
from whiflash.serving.requests import build_request
from whiflash.serving.scope import owner_of
from whiflash.serving.stream import Ended, Piece, Started, StreamEvent
from whiflash.serving.telemetry import CallTrack, Telemetry

PROMPT_SHARE = 1 / 8
"""What a prompt token is charged beside a token of an answer, in the fair share: prefill puts
many of them into one forward."""

EXPECTED_ANSWER_TOKENS = 256
"""An answer's length as the queue assumes it beforehand; what it really was is charged at the
end."""


class CallRunner:
    """The parts that all calls of a server share. For one event loop."""

    def __init__(
        self,
        backend: Backend,
        auth: Authenticator,
        queue: FairQueue,
        telemetry: Telemetry,
    ) -> None:
        self._backend = backend
        self._auth = auth
        self._queue = queue
        self._telemetry = telemetry
        self.allowances = Allowances()

    async def events(
        self, call: GenerationCall, context: CallContext, seed: int
    ) -> AsyncGenerator[StreamEvent, None]:
        """Everything of one call but `Queued`. Cancelling the task that runs it, or closing it,
        gives back at once what the call holds here and cancels the engine's request."""
        track = self._telemetry.begin(context)
        error: BaseException | None = None
        try:
            with self.allowances.call(context.caller, self._auth.limits(context.caller)):
                async for event in self._run(call, context, seed, track):
                    yield event
        except BaseException as caught:
            error = caught
            raise
        finally:
            self.allowances.pay(context.caller, track.charged_tokens)
            track.end(error)

    async def _run(
        self, call: GenerationCall, context: CallContext, seed: int, track: CallTrack
    ) -> AsyncGenerator[StreamEvent, None]:
        prepared = await prepare_prompt(self._backend, call.prompt)
        track.prompt_tokens = len(prepared.token_ids)
        request = await self._request(call, context, prepared)
        delivered = Delivered.of(request, self._backend.model, self._backend.tokenizer, seed)
        choices = _choices(request, prepared, offers_calls(call), delivered.text)
        if delivered.end is not None:
            yield Started(request.prompt_ids, seed)
            yield await choices[0].ended(delivered.end)
            return
        async with self._place(request, context, track) as place:
            await place.ready
            track.handed_over()
            started: Started | None = Started(request.prompt_ids, seed)
            async for event in self._generate(request, seed, choices, track):
                if started is not None:  # the backend refuses nothing from here on
                    yield started
                    started = None
                yield event

    async def _request(
        self, call: GenerationCall, context: CallContext, prepared: PreparedPrompt
    ) -> GenerationRequest:
        predicted = await encode_text(self._backend, call.prediction) if call.prediction else ()
        remaining_s = context.remaining_s()
        if remaining_s == 0.0:
            raise DeadlineExceededError("the deadline had passed before the call could start")
        model = self._backend.model
        return build_request(
            call,
            model,
            prepared.token_ids,
            predicted,
            owner_of(context.caller, call.subject).name,
            remaining_s,
            constraint_of(call, prepared.reasoning(), model.has_constraints),
            prepared.call_marker() if offers_calls(call) else "",
        )

    @asynccontextmanager
    async def _place(
        self, request: GenerationRequest, context: CallContext, track: CallTrack
    ) -> AsyncIterator[Place]:
        """A place in the queue, left with what the call really cost."""
        params, num_prompt = request.params, len(request.prompt_ids)
        expected = min(params.max_tokens, EXPECTED_ANSWER_TOKENS)
        place = self._queue.enter(
            context.caller.tenant,
            self._auth.limits(context.caller).weight,
            slots=params.n,
            tokens=params.n * (num_prompt + params.max_tokens),
            cost=PROMPT_SHARE * num_prompt + params.n * expected,
        )
        try:
            yield place
        finally:
            new_prompt = track.prompt_tokens - track.cached_tokens
            self._queue.leave(place, PROMPT_SHARE * new_prompt + track.generated)

    async def _generate(
        self,
        request: GenerationRequest,
        seed: int,
        choices: list[ChoiceStream],
        track: CallTrack,
    ) -> AsyncGenerator[Piece | Ended, None]:
        run = cast("AsyncGenerator[Delta | Completion, None]", self._backend.run(request, seed))
        async with aclosing(run) as events:
            async for event in events:
                if isinstance(event, Delta):
                    track.tokens(len(event.token_ids))
                    yield choices[event.index].piece(event)
                else:
                    ended = await choices[event.index].ended(event)
                    track.turn(ended)
                    yield ended


def _choices(
    request: GenerationRequest, prepared: PreparedPrompt, has_calls: bool, delivered: str
) -> list[ChoiceStream]:
    return [
        ChoiceStream(prepared.parser(has_calls), request.prediction_ids, delivered)
        for _ in range(request.params.n)
    ]
