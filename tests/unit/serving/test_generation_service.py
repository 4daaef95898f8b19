"""The common serving layer against a scripted backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from whiflash.chat.events import EventKind
from whiflash.core.errors import (
    DeadlineExceededError,
    DrainingError,
    EngineClosedError,
    InvalidRequestError,
    NotFoundError,
    NumericsError,
    PermissionDeniedError,
    PromptTooLongError,
    QueueFullError,
    RateLimitedError,
    RequestCancelledError,
    WhiFlashError,
)
from whiflash.core.params import SamplingParams
from whiflash.core.results import FinishReason
from whiflash.serving.auth import Authenticator
from whiflash.serving.call import ChatPrompt, GenerationCall, JsonFormat, TokenPrompt, ToolChoice
from whiflash.serving.caller import LOCAL_CALLER, CallContext, Caller, Scope
from whiflash.serving.generation import GenerationService, ServiceLimits
from whiflash.serving.keys import ApiKey, KeyLimits
from whiflash.serving.stream import Ended, Piece, Queued, Started, StreamEvent
from whiflash.testing.backends import EOS_ID, ScriptedBackend

MakeCall = Callable[..., GenerationCall]
MakeContext = Callable[..., CallContext]
SECONDS = 20.0


def in_loop(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, SECONDS))


async def settle(service: GenerationService, backend: ScriptedBackend) -> None:
    """Waits until nothing is open, and checks that nothing was left behind."""
    for _ in range(200):
        if not service.queue.num_running and not backend.running:
            break
        await asyncio.sleep(0.005)
    await asyncio.sleep(0)
    service.check_integrity()
    assert service.queue.num_running == service.queue.num_waiting == backend.running == 0
    text = service.telemetry.metrics.text().decode()
    assert "whiflash_requests_in_flight 0.0" in text


async def collect(
    service: GenerationService, call: GenerationCall, context: CallContext
) -> list[StreamEvent]:
    return [event async for event in service.stream(call, context)]


def test_a_call_starts_tells_its_pieces_and_ends(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        backend = ScriptedBackend("twelve chars")
        service = GenerationService(backend)
        events = await collect(service, call("hi", max_tokens=50), context())
        assert events[0] == Started((104, 105), backend.requests[0][1])
        pieces = [event for event in events if isinstance(event, Piece)]
        assert "".join(piece.text for piece in pieces) == "twelve chars"
        assert isinstance(events[-1], Ended)
        assert events[-1].message is None
        assert len(events) == 2 + len(pieces)
        await settle(service, backend)

    in_loop(run())


def test_a_seed_is_drawn_told_and_used(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        backend = ScriptedBackend()
        service = GenerationService(backend)
        seeds = [(await service.complete(call(), context())).seed for _ in range(3)]
        assert seeds == [seed for _, seed in backend.requests]
        assert len(set(seeds)) == 3
        fixed = await service.complete(call(params=SamplingParams(seed=7)), context())
        assert fixed.seed == 7

    in_loop(run())


def test_chats_are_parsed_unless_calls_are_forbidden(context: MakeContext) -> None:
    answer = 'go\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    tool = {"type": "function", "function": {"name": "f"}}
    prompt = ChatPrompt(({"role": "user", "content": "hi"},), (tool,))

    async def run() -> None:
        service = GenerationService(ScriptedBackend(answer))
        parsed = (await service.complete(GenerationCall(prompt), context())).choices[0].message
        assert parsed is not None
        assert [c.name for c in parsed.calls] == ["f"]
        for plain in (
            GenerationCall(prompt, tool_choice=ToolChoice("none")),
            GenerationCall(ChatPrompt(prompt.messages)),
        ):
            events = await collect(service, plain, context())
            ended = events[-1]
            assert isinstance(ended, Ended)
            assert ended.message is not None
            assert ended.message.content == answer
            kinds = {e.kind for p in events if isinstance(p, Piece | Ended) for e in p.events}
            assert kinds == {EventKind.CONTENT}

    in_loop(run())


def test_all_choices_come_and_are_sorted(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        service = GenerationService(ScriptedBackend())
        result = await service.complete(call(params=SamplingParams(n=3)), context())
        assert [ended.index for ended in result.choices] == [0, 1, 2]

    in_loop(run())


TOOL = {"type": "function", "function": {"name": "f"}}
CHAT = ChatPrompt(({"role": "user", "content": "hi"},))
WRONG: list[tuple[dict[str, Any], type[WhiFlashError], str]] = [
    ({"model": "other"}, NotFoundError, "model"),
    ({"drafter": "nope"}, InvalidRequestError, "drafter"),
    ({"max_draft": -1}, InvalidRequestError, "max_draft"),
    ({"max_tokens": 0}, InvalidRequestError, "max_tokens"),
    ({"forced_ids": (1,)}, InvalidRequestError, "forced_ids"),
    ({"forced_ids": (1,), "params": SamplingParams(seed=1, n=2)}, InvalidRequestError,
     "forced_ids"),
    ({"forced_ids": (1, 2, 3), "params": SamplingParams(seed=1), "max_tokens": 2},
     InvalidRequestError, "forced_ids"),
    ({"prompt": TokenPrompt(())}, InvalidRequestError, "prompt"),
    ({"prompt": TokenPrompt((-1,))}, InvalidRequestError, "prompt"),
    ({"prompt": TokenPrompt((1 << 40,))}, InvalidRequestError, "prompt"),
    ({"prompt": TokenPrompt((65,) * 4096)}, PromptTooLongError, "prompt"),
    ({"params": SamplingParams(logit_bias={1 << 40: 1.0})}, InvalidRequestError, "logit_bias"),
    ({"params": SamplingParams(min_tokens=200), "max_tokens": 100}, InvalidRequestError,
     "min_tokens"),
    ({"prompt": ChatPrompt(())}, InvalidRequestError, "messages"),
    ({"prompt": ChatPrompt(({"role": "user", "content": "\ud800"},))}, InvalidRequestError,
     "prompt"),
    ({"prediction": "\ud800"}, InvalidRequestError, "prediction"),
    ({"run_id": "x" * 300}, InvalidRequestError, "run_id"),
    ({"subject": "\udfff"}, InvalidRequestError, "subject"),
    ({"tool_choice": ToolChoice("required")}, InvalidRequestError, "tool_choice"),
    ({"tool_choice": ToolChoice("maybe")}, InvalidRequestError, "tool_choice"),
    ({"prompt": ChatPrompt(CHAT.messages, (TOOL,)), "tool_choice": ToolChoice("named", "g")},
     InvalidRequestError, "tool_choice"),
    ({"prompt": ChatPrompt(CHAT.messages, (TOOL,)), "tool_choice": ToolChoice("required")},
     InvalidRequestError, "tool_choice"),
    ({"json_format": JsonFormat()}, InvalidRequestError, "response_format"),
    ({"prompt": ChatPrompt(CHAT.messages, (), {"tools": 1})}, InvalidRequestError,
     "template_values"),
    ({"idempotency_key": "x" * 300}, InvalidRequestError, "idempotency_key"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "error", "param"), WRONG)
def test_what_cannot_be_honoured_is_refused_before_the_start(
    fields: dict[str, Any], error: type[WhiFlashError], param: str, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend()
        service = GenerationService(backend)
        asked = GenerationCall(**{"prompt": TokenPrompt((65,)), **fields})
        with pytest.raises(error) as caught:
            await anext(service.stream(asked, context()))
        assert getattr(caught.value, "param", None) == param
        assert not backend.requests
        await settle(service, backend)

    in_loop(run())


def test_no_bound_is_the_rest_of_the_context_and_a_large_one_is_cut_to_it(
    call: MakeCall, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend(context_limit=100)
        service = GenerationService(backend)
        for bound in (None, 5, 1000):
            await service.complete(call("ten chars.", max_tokens=bound), context())
        assert [r.params.max_tokens for r, _ in backend.requests] == [90, 5, 90]
        small = ScriptedBackend(context_limit=100, kv_tokens=60)
        await GenerationService(small).complete(call("ten chars."), context())
        assert small.requests[0][0].params.max_tokens == 50

    in_loop(run())


def test_a_prediction_is_counted_token_by_token(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        service = GenerationService(ScriptedBackend("the cat sat"))
        result = await service.complete(call(prediction="the rat sat!"), context())
        ended = result.choices[0]
        assert (ended.accepted_prediction_tokens, ended.rejected_prediction_tokens) == (10, 2)

    in_loop(run())


def test_a_resumed_call_goes_on_behind_what_was_delivered(context: MakeContext) -> None:
    answer = 'x\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    prompt = ChatPrompt(({"role": "user", "content": "hi"},), (TOOL,))
    params = SamplingParams(seed=3)

    async def run() -> None:
        backend = ScriptedBackend(answer)
        service = GenerationService(backend)
        whole = (await service.complete(GenerationCall(prompt, params), context())).choices[0]
        for cut in range(1, len(answer)):
            forced = tuple(map(ord, answer[:cut]))
            asked = GenerationCall(prompt, params, forced_ids=forced)
            events = await collect(service, asked, context())
            text = "".join(event.text for event in events if isinstance(event, Piece))
            ended = events[-1]
            assert isinstance(ended, Ended)
            assert answer[:cut] + text == answer
            assert ended.message == whole.message
            assert ended.completion.token_ids == whole.completion.token_ids
            assert backend.requests[-1][0].forced_ids == forced

    in_loop(run())


@pytest.mark.parametrize(
    ("forced", "fields", "reason"),
    [
        ((65, EOS_ID), {}, FinishReason.STOP),
        ((65, 66), {"max_tokens": 2}, FinishReason.LENGTH),
        ((65, 66), {"params": SamplingParams(seed=1, stop=("AB",))}, FinishReason.STOP),
    ],
)
def test_a_resumed_call_that_had_ended_only_ends(
    forced: tuple[int, ...], fields: dict[str, Any], reason: FinishReason, call: MakeCall,
    context: MakeContext,
) -> None:  # fmt: skip
    async def run() -> None:
        backend = ScriptedBackend()
        asked = call(**{"params": SamplingParams(seed=1), "forced_ids": forced, **fields})
        started, ended = await collect(GenerationService(backend), asked, context())
        assert isinstance(started, Started)
        assert isinstance(ended, Ended)
        assert ended.completion.finish_reason is reason
        assert ended.completion.token_ids == forced
        assert not backend.requests

    in_loop(run())


def test_what_a_stop_string_withheld_belongs_to_a_message_that_had_ended(
    context: MakeContext,
) -> None:
    """ "say z" might have become "say zz"; its end delivered the "z"."""
    prompt = ChatPrompt(({"role": "user", "content": "hi"},))
    forced = (*map(ord, "say z"), EOS_ID)
    params = SamplingParams(seed=3, stop=("zz",))

    async def run() -> None:
        service = GenerationService(ScriptedBackend())
        asked = GenerationCall(prompt, params, forced_ids=forced)
        ended = (await collect(service, asked, context()))[-1]
        assert isinstance(ended, Ended)
        assert ended.message is not None
        assert ended.message.text == "say z"

    in_loop(run())


def test_waiting_calls_hear_that_they_wait(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        backend = ScriptedBackend(slots=1)
        backend.gate.clear()
        service = GenerationService(backend, limits=ServiceLimits(queued_s=0.02))
        first = asyncio.create_task(collect(service, call(), context()))
        second = asyncio.create_task(collect(service, call(), context()))
        await asyncio.sleep(0.1)
        assert backend.running == 1
        assert service.load().waiting == 1
        backend.gate.set()
        for events in await asyncio.gather(first, second):
            kinds = [type(event) for event in events]
            assert kinds.count(Queued) >= 2
            assert Queued not in kinds[kinds.index(Started) :]
        await settle(service, backend)

    in_loop(run())


def test_deadlines_end_running_and_waiting_calls(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        backend = ScriptedBackend(slots=1)
        backend.gate.clear()
        service = GenerationService(backend)
        now = time.monotonic()
        late = [context(deadline_s=now + 0.05) for _ in range(3)]
        results = await asyncio.gather(
            *(service.complete(call(), one) for one in late), return_exceptions=True
        )
        assert [type(result) for result in results] == [DeadlineExceededError] * 3
        backend.gate.set()
        await settle(service, backend)
        assert backend.cancelled == 1
        with pytest.raises(DeadlineExceededError):
            await service.complete(call(), context(deadline_s=now - 1))
        await settle(service, backend)
        text = service.telemetry.metrics.text().decode()
        assert 'whiflash_requests_total{outcome="deadline_exceeded"} 4.0' in text

    in_loop(run())


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (FinishReason.DEADLINE, DeadlineExceededError),
        (FinishReason.ERROR, NumericsError),
        (FinishReason.CANCELLED, EngineClosedError),
    ],
)
def test_ends_from_outside_are_errors_of_the_call(
    reason: FinishReason, error: type[WhiFlashError], call: MakeCall, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend(reason=reason)
        service = GenerationService(backend)
        with pytest.raises(error):
            await service.complete(call(), context())
        await settle(service, backend)

    in_loop(run())


def test_a_fault_of_the_backend_is_the_calls_and_leaves_no_trace(
    call: MakeCall, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend(fault=EngineClosedError("gone"))
        service = GenerationService(backend)
        with pytest.raises(EngineClosedError, match="gone"):
            await service.complete(call(), context())
        await settle(service, backend)

    in_loop(run())


def test_full_lines_are_refused(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        backend = ScriptedBackend(slots=1)
        backend.gate.clear()
        service = GenerationService(backend, limits=ServiceLimits(2, 1))
        tasks = [asyncio.create_task(service.complete(call(), context(t))) for t in ("", "", "b")]
        await asyncio.sleep(0.01)
        with pytest.raises(RateLimitedError):
            await service.complete(call(), context("b"))
        with pytest.raises(QueueFullError):
            await service.complete(call(), context("c"))
        backend.gate.set()
        await asyncio.gather(*tasks)
        await settle(service, backend)

    in_loop(run())


def test_a_keys_limits_hold_and_heal(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        backend = ScriptedBackend()
        caller = context("a").caller
        key = ApiKey("sha256:" + "0" * 64, caller, KeyLimits(max_in_flight=1))
        service = GenerationService(backend, Authenticator([key]))
        backend.gate.clear()
        first = asyncio.create_task(service.complete(call(), context("a")))
        await asyncio.sleep(0.01)
        with pytest.raises(RateLimitedError):
            await service.complete(call(), context("a"))
        backend.gate.set()
        await first
        await service.complete(call(), context("a"))
        await settle(service, backend)

    in_loop(run())


def test_keys_without_the_scope_may_not(call: MakeCall) -> None:
    async def run() -> None:
        service = GenerationService(ScriptedBackend())
        caller = Caller("a", "p", frozenset({Scope.STORE}), "k")
        with pytest.raises(PermissionDeniedError):
            await service.complete(call(), CallContext(caller, "r"))
        with pytest.raises(PermissionDeniedError):
            service.metrics_text(caller)
        assert service.metrics_text(LOCAL_CALLER)

    in_loop(run())


def test_owners_are_apart_and_what_a_call_says_of_store_and_drafts_is_passed_on(
    call: MakeCall, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend()
        service = GenerationService(backend)
        asked = [
            (call(), context()), (call(), context("a")), (call(), context("b")),
            (call(subject="x"), context("a")), (call(subject="y"), context("a")),
        ]  # fmt: skip
        for one, circumstances in asked:
            await service.complete(one, circumstances)
        labels = call(subject="x", shared_drafts=False, store=False, run_id="r", agent="g")
        await service.complete(labels, context("a"))
        names = [request.namespace for request, _ in backend.requests]
        assert len(set(names)) == len(asked)
        assert names[-1] == names[3]
        first, last = backend.requests[0][0], backend.requests[-1][0]
        assert (first.store, first.shared_drafts, first.subject) == (True, True, "")
        assert (last.store, last.shared_drafts) == (False, False)
        assert (last.subject, last.run_id, last.agent) == ("x", "r", "g")

    in_loop(run())


def test_cancelling_by_id_reaches_the_callers_own_calls_only(
    call: MakeCall, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend()
        backend.gate.clear()
        service = GenerationService(backend)
        task = asyncio.create_task(service.complete(call(), context("a", "one")))
        await asyncio.sleep(0.01)
        for request_id, tenant in (("one", "b"), ("two", "a")):
            with pytest.raises(NotFoundError):
                service.cancel(request_id, context(tenant).caller)
        service.cancel("one", context("a").caller)
        with pytest.raises(RequestCancelledError):
            await task
        await settle(service, backend)
        assert backend.cancelled == 1

    in_loop(run())


# Idempotency


def test_a_repetition_joins_the_running_call_and_the_finished_one(
    call: MakeCall, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend(round_s=0.005)
        service = GenerationService(backend)
        asked = call(idempotency_key="k")
        first = asyncio.create_task(collect(service, asked, context()))
        await asyncio.sleep(0.012)
        second = asyncio.create_task(collect(service, asked, context()))
        events = await asyncio.gather(first, second)
        third = await collect(service, asked, context())
        assert events[0] == events[1] == third
        assert len(backend.requests) == 1
        await service.complete(asked, context("a"))  # another tenant's key is another key
        assert len(backend.requests) == 2
        await settle(service, backend)

    in_loop(run())


def test_a_key_stands_for_one_call(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        service = GenerationService(ScriptedBackend())
        await service.complete(call(idempotency_key="k"), context())
        with pytest.raises(InvalidRequestError, match="another request"):
            await service.complete(call("other", idempotency_key="k"), context())

    in_loop(run())


def test_one_listener_that_leaves_cancels_nothing_the_last_one_does_and_the_seed_stays(
    call: MakeCall, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend()
        backend.gate.clear()
        service = GenerationService(backend)
        asked = call(idempotency_key="k")
        tasks = [asyncio.create_task(service.complete(asked, context())) for _ in range(2)]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        await asyncio.sleep(0.01)
        assert backend.running == 1
        tasks[1].cancel()
        await asyncio.sleep(0.01)
        assert backend.running == 0
        assert backend.cancelled == 1
        backend.gate.set()
        again = await service.complete(asked, context())
        assert again.seed == backend.requests[0][1] == backend.requests[1][1]
        await settle(service, backend)

    in_loop(run())


# The end


def test_draining_lets_open_calls_end_and_refuses_new_ones(
    call: MakeCall, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend(slots=1, round_s=0.01)
        service = GenerationService(backend)
        tasks = [asyncio.create_task(service.complete(call(), context())) for _ in range(2)]
        await asyncio.sleep(0.005)
        draining = asyncio.create_task(service.drain(5.0))
        await asyncio.sleep(0)
        assert not service.is_ready
        with pytest.raises(DrainingError):
            await service.complete(call(), context())
        assert await draining
        assert all(result.choices for result in await asyncio.gather(*tasks))
        await settle(service, backend)

    in_loop(run())


def test_a_drain_cuts_what_does_not_end(call: MakeCall, context: MakeContext) -> None:
    async def run() -> None:
        backend = ScriptedBackend(slots=1)
        backend.gate.clear()
        service = GenerationService(backend)
        tasks = [asyncio.create_task(service.complete(call(), context())) for _ in range(3)]
        await asyncio.sleep(0.01)
        began = time.monotonic()
        assert not await service.drain(0.05)
        assert time.monotonic() - began < 2.0
        for task in tasks:
            with pytest.raises(DrainingError):
                await task
        await settle(service, backend)

    in_loop(run())


def test_a_backend_that_is_not_ready_is_no_place_for_calls(
    call: MakeCall, context: MakeContext
) -> None:
    async def run() -> None:
        backend = ScriptedBackend()
        backend.is_ready = False
        with pytest.raises(DrainingError, match="not ready"):
            await GenerationService(backend).complete(call(), context())

    in_loop(run())
