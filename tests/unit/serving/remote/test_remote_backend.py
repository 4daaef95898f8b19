"""Verifiers that come, go, drain, differ, are full, or fall silent; the text never notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from whiflash.core.errors import (
    DrainingError,
    InvalidRequestError,
    NumericsError,
    PromptTooLongError,
    QueueFullError,
)
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.results import Completion, Delta, FinishReason
from whiflash.serving.remote.backend import RemoteBackend
from whiflash.testing.backends import ScriptedBackend

ANSWER = "an answer of some length, in rounds of three characters"
PROMPT = GenerationRequest(tuple(range(40)))


def scripted(**options: Any) -> ScriptedBackend:
    return ScriptedBackend(ANSWER, **{"round_s": 0.005, **options})


async def collect(
    backend: RemoteBackend, request: GenerationRequest = PROMPT, on_delta: Any = None
) -> tuple[str, list[Completion]]:
    """Text as it was delivered, and the ends. `on_delta(number)` is awaited after each delta."""
    text, ends, number = "", [], 0
    async for event in backend.run(request, 5):
        if isinstance(event, Completion):
            ends.append(event)
            continue
        text += event.text
        number += 1
        if on_delta is not None:
            await on_delta(number)
    return text, ends


def busy(cluster: Any) -> int:
    """The one that runs something."""
    return next(number for number, one in enumerate(cluster.verifiers) if one.running)


def test_an_answer_arrives_whole(on_cluster: Callable[..., Any]) -> None:
    async def scenario(backend: RemoteBackend, _: Any) -> None:
        text, [end] = await collect(backend)
        assert text == end.text == ANSWER
        assert end.finish_reason is FinishReason.STOP
        assert end.usage.prompt_tokens == 40
        assert end.usage.arms["retrieval"].accepted > 0
        assert (end.seed, len(end.segments)) == (5, len(end.token_ids) // 3 + 1)

    on_cluster(scenario, scripted())


def test_a_lost_verifier_costs_no_text(on_cluster: Callable[..., Any]) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        async def on_delta(number: int) -> None:
            if number == 4:
                await cluster.kill(busy(cluster))

        text, [end] = await collect(backend, on_delta=on_delta)
        assert text == end.text == ANSWER
        assert end.usage.completion_tokens == len(ANSWER)
        assert backend.num_moves == 1
        resumed = [r for one in cluster.verifiers for r, _ in one.requests if r.forced_ids]
        assert len(resumed) == 1
        assert len(resumed[0].forced_ids) >= 12

    on_cluster(scenario, scripted(), scripted())


def test_several_choices_are_written_anew_and_nothing_comes_twice(
    on_cluster: Callable[..., Any],
) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        async def on_delta(number: int) -> None:
            if number == 25:  # in the second choice
                await cluster.kill(busy(cluster))

        request = GenerationRequest(tuple(range(40)), SamplingParams(n=3))
        text, ends = await collect(backend, request, on_delta)
        assert text == ANSWER * 3
        assert [end.index for end in ends] == [0, 1, 2]
        assert {end.text for end in ends} == {ANSWER}

    on_cluster(scenario, scripted(), scripted())


def test_the_only_verifier_is_waited_for(on_cluster: Callable[..., Any]) -> None:
    """It comes back at the same address as another incarnation."""

    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        async def on_delta(number: int) -> None:
            if number == 4:
                port = int(cluster.servers[0].address.split(":")[1])
                await cluster.kill(0)
                assert not backend.is_ready or await asyncio.sleep(0.5) is None
                await cluster.start(0, port=port)

        text, _ = await collect(backend, on_delta=on_delta)
        assert text == ANSWER

    on_cluster(scenario, scripted())


def test_a_draining_verifier_ends_what_it_has_and_gets_nothing_new(
    on_cluster: Callable[..., Any],
) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        drains: list[asyncio.Task[bool]] = []

        async def on_delta(number: int) -> None:
            if number == 2:
                drains.append(asyncio.create_task(cluster.servers[busy(cluster)].drain(20.0)))

        text, _ = await collect(backend, on_delta=on_delta)
        assert text == ANSWER
        assert backend.num_moves == 0
        assert await drains[0]
        before = [len(one.requests) for one in cluster.verifiers]
        assert (await collect(backend))[0] == ANSWER
        after = [len(one.requests) for one in cluster.verifiers]
        assert sorted(b - a for a, b in zip(before, after, strict=True)) == [0, 1]
        assert after[before.index(1)] == 1

    on_cluster(scenario, scripted(), scripted())


def test_what_a_drain_cuts_goes_on_elsewhere(on_cluster: Callable[..., Any]) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        async def on_delta(number: int) -> None:
            if number == 2:
                assert not await cluster.servers[busy(cluster)].drain(0.0)

        text, _ = await collect(backend, on_delta=on_delta)
        assert text == ANSWER
        assert backend.num_moves == 1

    on_cluster(scenario, scripted(), scripted())


@pytest.mark.parametrize(
    "fault",
    [
        InvalidRequestError("top_k is wrong", "top_k"),
        PromptTooLongError("too long", "prompt"),
        NumericsError("NaN"),
    ],
)
def test_errors_of_the_request_are_told_and_not_tried_again(
    on_cluster: Callable[..., Any], fault: Exception
) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        with pytest.raises(type(fault)) as caught:
            await collect(backend)
        assert str(caught.value) == str(fault)
        assert getattr(caught.value, "param", None) == getattr(fault, "param", None)
        assert sum(len(one.requests) for one in cluster.verifiers) == 1

    on_cluster(scenario, scripted(fault=fault), scripted(fault=fault))


def test_a_full_verifier_is_passed_over_and_when_all_are_the_caller_is_told(
    on_cluster: Callable[..., Any],
) -> None:
    class Full(ScriptedBackend):
        async def run(self, request: GenerationRequest, seed: int) -> Any:
            self.requests.append((request, seed))
            raise QueueFullError("full")
            yield

    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        for _ in range(8):
            assert (await collect(backend))[0] == ANSWER

    async def all_full(backend: RemoteBackend, cluster: Any) -> None:
        with pytest.raises(QueueFullError):
            await collect(backend)

    on_cluster(scenario, Full(), scripted())
    on_cluster(all_full, Full(), Full())


def test_a_request_that_kills_its_verifiers_is_given_up(on_cluster: Callable[..., Any]) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        with pytest.raises(DrainingError):
            await collect(backend)
        assert sum(len(one.requests) for one in cluster.verifiers) == 4

    class Poisoned(ScriptedBackend):
        async def run(self, request: GenerationRequest, seed: int) -> Any:
            self.requests.append((request, seed))
            raise RuntimeError("the process is poisoned")
            yield

    on_cluster(scenario, Poisoned(), Poisoned())


def test_without_verifiers_the_caller_is_told_to_try_again(on_cluster: Callable[..., Any]) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        await cluster.kill(0)
        with pytest.raises(DrainingError, match="no verifier"):
            await collect(backend)
        assert not backend.is_ready

    on_cluster(scenario, scripted(), begin_s=0.3)


def test_another_tokenizer_gets_no_requests(on_cluster: Callable[..., Any]) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        await cluster.kill(1)
        await cluster.start(1, tokenizer="another")
        for _ in range(100):
            problems = [status.problem for status in cluster.pool.status()]
            if any("tokenizer" in problem for problem in problems):
                break
            await asyncio.sleep(0.05)
        assert any("another instead of characters" in problem for problem in problems)
        assert (await collect(backend))[0] == ANSWER
        assert not cluster.verifiers[1].requests

    on_cluster(scenario, scripted(), scripted())


def test_a_caller_that_leaves_ends_the_request(on_cluster: Callable[..., Any]) -> None:
    """vllm production-stack #634: a cancel must reach the engine through every hop."""

    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        events = backend.run(PROMPT, 1)
        assert isinstance(await anext(events), Delta)
        await events.aclose()
        for _ in range(100):
            if cluster.verifiers[0].cancelled == 1:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the verifier goes on")

    on_cluster(scenario, scripted(round_s=0.05))


def test_a_session_stays_and_sessions_spread(on_cluster: Callable[..., Any]) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        # Ports are random, and so are hashes: of 12, all would be at one once in 2,048 runs.
        for session in range(40):
            before = [len(one.requests) for one in cluster.verifiers]
            for turn in range(3):
                prompt = (session,) * 40 + (turn,) * turn
                await collect(backend, GenerationRequest(prompt))
            after = [len(one.requests) for one in cluster.verifiers]
            assert sorted(b - a for a, b in zip(before, after, strict=True)) == [0, 3]
        assert min(len(one.requests) for one in cluster.verifiers) > 0

    # Many slots: one request that the last sign of life still shows makes nobody busy.
    on_cluster(scenario, scripted(round_s=0, slots=16), scripted(round_s=0, slots=16))


def test_many_at_once_share_the_verifiers(on_cluster: Callable[..., Any]) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        results = await asyncio.gather(*(collect(backend) for _ in range(24)))
        assert {text for text, _ in results} == {ANSWER}
        shares = [len(one.requests) for one in cluster.verifiers]
        assert min(shares) >= 8, "one prompt for all, and yet nobody idles"

    on_cluster(scenario, scripted(slots=8), scripted(slots=8))
