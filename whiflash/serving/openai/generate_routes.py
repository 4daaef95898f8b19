"""/v1/chat/completions and /v1/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from fastapi import Request, Response

from whiflash.core.errors import InvalidRequestError
from whiflash.serving.caller import CallContext, Scope
from whiflash.serving.openai.chat_answer import ChatChunks, Chunk
from whiflash.serving.openai.chat_body import ChatBody
from whiflash.serving.openai.completion_body import CompletionBody
from whiflash.serving.openai.convert import chat_call, completion_calls
from whiflash.serving.openai.edge import Edge, idempotency_key
from whiflash.serving.openai.head import Head
from whiflash.serving.openai.merge import merged
from whiflash.serving.openai.sse import (
    DONE,
    EventStream,
    comment,
    data_event,
    json_answer,
    until_gone,
)
from whiflash.serving.openai.text_answer import TextChunks
from whiflash.serving.openai.totals import Totals
from whiflash.serving.stream import Queued

Events = AsyncGenerator[list[Chunk] | Queued, None]
_FIELD_NAMES = {
    "drafter": "whiflash.drafter",
    "max_draft": "whiflash.max_draft",
    "template_values": "chat_template_kwargs",
}


class GenerateRoutes:
    """Both endpoints."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        caller = self._edge.caller(request)
        body = await self._edge.read(request, ChatBody)
        context = self._edge.context(request, caller, body)
        chunks = self._chat_chunks(body, context)
        events = self._chat_events(body, context, chunks, idempotency_key(request))
        return await self._respond(request, body, chunks, events)

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions."""
        caller = self._edge.caller(request)
        body = await self._edge.read(request, CompletionBody)
        context = self._edge.context(request, caller, body)
        chunks = self._text_chunks(body, context)
        events = self._text_events(body, context, chunks, idempotency_key(request))
        return await self._respond(request, body, chunks, events)

    async def _respond(
        self,
        request: Request,
        body: ChatBody | CompletionBody,
        chunks: ChatChunks | TextChunks,
        events: Events,
    ) -> Response:
        if body.stream:
            return EventStream(_server_sent(events, chunks), self._edge.limits.stall_limit_s)
        return json_answer(chunks.whole(await until_gone(request, _collect(events))))

    async def _chat_events(
        self, body: ChatBody, context: CallContext, chunks: ChatChunks, key: str
    ) -> Events:
        with _field_names(prompt="messages"):
            call = chat_call(body, key)
            async with aclosing(self._edge.service.stream(call, context)) as events:
                async for event in events:
                    yield event if isinstance(event, Queued) else chunks.of(event)

    async def _text_events(
        self, body: CompletionBody, context: CallContext, chunks: TextChunks, key: str
    ) -> Events:
        with _field_names(prompt="prompt"):
            calls = completion_calls(body, key)
            streams = [self._edge.service.stream(call, context) for call in calls]
            async with aclosing(merged(streams)) as events:
                async for prompt, event in events:
                    yield event if isinstance(event, Queued) else chunks.of(prompt, event)

    def _chat_chunks(self, body: ChatBody, context: CallContext) -> ChatChunks:
        return ChatChunks(
            Head.new("chatcmpl", _kind("chat.completion", body), self._edge.service.model),
            Totals(has_arms=context.caller.may(Scope.DEBUG)),
            self._edge.texts,
            num_choices=body.n or 1,
            has_usage=_has_usage(body),
            has_logprobs=bool(body.logprobs),
            holds_calls=not self._forces_calls(body),
        )

    def _forces_calls(self, body: ChatBody) -> bool:
        """A grammar holds calls to their form from their marker on (serving/constraints.py)."""
        offers_calls = bool(body.tools) and body.tool_choice != "none"
        return offers_calls and self._edge.service.model.has_constraints

    def _text_chunks(self, body: CompletionBody, context: CallContext) -> TextChunks:
        prompts = body.prompts()
        return TextChunks(
            Head.new("cmpl", "text_completion", self._edge.service.model),
            Totals(has_arms=context.caller.may(Scope.DEBUG)),
            self._edge.tokenizer,
            self._edge.texts,
            num_choices=body.n or 1,
            echoes=[prompt if body.echo and isinstance(prompt, str) else "" for prompt in prompts],
            has_usage=_has_usage(body),
            has_logprobs=body.logprobs is not None,
        )


def _kind(name: str, body: ChatBody) -> str:
    return f"{name}.chunk" if body.stream else name


def _has_usage(body: ChatBody | CompletionBody) -> bool:
    return bool(body.stream_options and body.stream_options.include_usage)


async def _server_sent(
    events: Events, chunks: ChatChunks | TextChunks
) -> AsyncGenerator[bytes, None]:
    """One piece of bytes per event, whatever number of chunks it makes."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Queued):
                yield comment(f"queued for {event.waited_s:.0f} s")
            elif event:
                yield b"".join(data_event(chunk) for chunk in event)
    yield b"".join(data_event(chunk) for chunk in chunks.last()) + DONE


async def _collect(events: Events) -> list[Chunk]:
    async with aclosing(events):
        return [chunk async for event in events if isinstance(event, list) for chunk in event]


@contextmanager
def _field_names(prompt: str) -> Iterator[None]:
    """The service names its own fields in errors; a client knows them by other names."""
    try:
        yield
    except InvalidRequestError as error:
        names = {**_FIELD_NAMES, "prompt": prompt}
        if error.param in names:
            error.param = names[error.param]
        raise
