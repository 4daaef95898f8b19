"""Callers that leave, deadlines and tenants, on the real engine with the float64 toy."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from whiflash.core.errors import DeadlineExceededError, EngineClosedError
from whiflash.core.params import SamplingParams
from whiflash.engine.core import EngineCore
from whiflash.engine.engine import Engine
from whiflash.engine.sequence import Sequence
from whiflash.serving.call import GenerationCall, TextPrompt
from whiflash.serving.caller import CallContext
from whiflash.serving.embedded import WARM_UP_NAMESPACE, EmbeddedBackend
from whiflash.serving.generation import GenerationService
from whiflash.serving.scope import owner_of
from whiflash.testing.toy import write_toy

MakeContext = Callable[..., CallContext]
NUM_CANCELS = 200
NUM_CALLERS = 10
PROMPTS = [f"case {n}: the quick brown fox jumps over the lazy dog, {n} times" for n in range(8)]


class StepWatch:
    """Looks at each step of the engine: who was cancelled before it must be gone after it."""

    def __init__(self, core: EngineCore) -> None:
        self.faults: list[str] = []
        self._core, self._step = core, core.step
        core.step = self.step  # type: ignore[method-assign]

    def step(self) -> bool:
        left = [s for s in self._open() if s.ticket.is_cancelled]
        did_work = self._step()
        for sequence in left:
            if not sequence.is_finished or sequence.cache is not None or sequence.reserved_bytes:
                self.faults.append(f"sequence {sequence.id} outlived its caller by a step")
        return did_work

    def _open(self) -> list[Sequence]:
        return [*self._core.running, *self._core.admission.waiting]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        folder = write_toy(tmp_path_factory.mktemp("toy"))
        with Engine(model=str(folder), dtype="float64", memory="8MiB", max_batch=6) as made:
            yield made


@pytest.fixture
def backend(engine: Engine) -> EmbeddedBackend:
    made = EmbeddedBackend(engine, "toy")
    made.warm_up()
    return made


def toy_call(rng: random.Random, number: int) -> GenerationCall:
    params = SamplingParams(
        temperature=rng.choice([0.0, 1.0]), seed=number, n=rng.choice([1, 1, 2])
    )
    return GenerationCall(
        TextPrompt(rng.choice(PROMPTS)),
        params,
        max_tokens=rng.randint(5, 40),
        drafter=rng.choice([None, "retrieval", "none"]),
    )


async def idle(engine: Engine, service: GenerationService) -> None:
    """Everything that callers held is given back; at most cached prefixes stay."""
    for _ in range(400):
        if not engine.core.has_work and not service.queue.num_running:
            break
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.01)
    service.check_integrity()
    engine.core.check_integrity()
    load = service.load()
    assert (load.running, load.waiting, load.kv_bytes) == (0, 0, 0)
    text = service.telemetry.metrics.text().decode()
    for gauge in ("requests_in_flight", "engine_running", "engine_waiting", "queue_waiting",
                  "kv_bytes"):  # fmt: skip
        assert f"whiflash_{gauge} 0.0" in text, gauge


def test_random_cancels_free_all_within_a_step_and_change_no_other_text(
    engine: Engine, backend: EmbeddedBackend, context: MakeContext
) -> None:
    """sglang #36333, vllm production-stack #634, sglang-jax #1147: zombies, drifting gauges and
    leaked slots behind callers that left."""
    rng = random.Random(11)
    watch = StepWatch(engine.core)
    calls = [toy_call(rng, number) for number in range(40)]

    async def run() -> int:
        service = GenerationService(backend)
        alone = [await service.complete(one, context("a")) for one in calls]
        cancels = 0

        async def caller(tenant: str) -> None:
            nonlocal cancels
            while cancels < NUM_CANCELS:
                number = rng.randrange(len(calls))
                one = replace(calls[number], store=rng.random() < 0.5)
                task = asyncio.create_task(service.complete(one, context(tenant)))
                if rng.random() < 0.7:
                    await asyncio.sleep(rng.random() ** 3 * 0.05)
                    cancels += not task.done()
                    task.cancel()
                    await asyncio.wait([task])
                else:
                    texts = [ended.completion.text for ended in (await task).choices]
                    assert texts == [ended.completion.text for ended in alone[number].choices]

        await asyncio.gather(*(caller(rng.choice("abc")) for _ in range(NUM_CALLERS)))
        await idle(engine, service)
        return cancels

    assert asyncio.run(asyncio.wait_for(run(), 120)) >= NUM_CANCELS
    assert not watch.faults


def test_streams_that_are_closed_early_cancel_their_call(
    engine: Engine, backend: EmbeddedBackend, context: MakeContext
) -> None:
    async def run() -> None:
        service = GenerationService(backend)
        long = GenerationCall(
            TextPrompt(PROMPTS[0]), SamplingParams(ignore_eos=True), max_tokens=400
        )
        stream = service.stream(long, context())
        for _ in range(3):
            await anext(stream)
        await stream.aclose()
        emitted = engine.core.counters.emitted_tokens
        await idle(engine, service)
        assert engine.core.counters.emitted_tokens - emitted < 100

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_deadline_frees_the_slot(
    engine: Engine, backend: EmbeddedBackend, context: MakeContext
) -> None:
    async def run() -> None:
        service = GenerationService(backend)
        long = GenerationCall(
            TextPrompt(PROMPTS[0]), SamplingParams(ignore_eos=True), max_tokens=440
        )
        late = context(deadline_s=time.monotonic() + 0.02)
        with pytest.raises(DeadlineExceededError):
            await service.complete(long, late)
        await idle(engine, service)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_tenants_share_neither_prefixes_nor_trajectories(
    engine: Engine, backend: EmbeddedBackend, context: MakeContext
) -> None:
    async def run() -> None:
        service = GenerationService(backend)
        one = GenerationCall(TextPrompt("tenants: " + PROMPTS[1]), max_tokens=20)
        first = [await service.complete(one, context(tenant)) for tenant in ("ann", "bob")]
        again = await service.complete(one, context("ann"))
        cached = [r.choices[0].completion.usage.cached_tokens for r in (*first, again)]
        assert cached[:2] == [0, 0]
        assert cached[2] > 0
        texts = {r.choices[0].completion.text for r in (*first, again)}
        assert len(texts) == 1
        await idle(engine, service)

    asyncio.run(asyncio.wait_for(run(), 60))
    names = [owner_of(context(t).caller).name for t in ("", "a", "b", "c", "ann", "bob")]
    known = {engine.store.namespace(name) for name in (*names, WARM_UP_NAMESPACE)}
    assert {e.namespace for e in engine.core.admission.prefixes._entries} <= known


def test_a_cut_stream_goes_on_where_it_broke_off(
    backend: EmbeddedBackend, context: MakeContext
) -> None:
    async def run() -> None:
        service = GenerationService(backend)
        whole = GenerationCall(
            TextPrompt(PROMPTS[2]), SamplingParams(temperature=1.0), max_tokens=40
        )
        result = await service.complete(whole, context())
        done = result.choices[0].completion
        for cut in range(1, len(done.token_ids) + 1):
            params = replace(whole.params, seed=result.seed)
            rest = replace(whole, params=params, forced_ids=done.token_ids[:cut])
            resumed = (await service.complete(rest, context("other"))).choices[0].completion
            assert resumed.token_ids == done.token_ids
            assert resumed.finish_reason is done.finish_reason
            assert done.text.endswith(resumed.text)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_the_backend_says_what_it_is(engine: Engine, backend: EmbeddedBackend) -> None:
    model, info = backend.model, engine.core.target.info
    assert (model.name, model.vocab_size, model.context_limit) == ("toy", info.vocab_size, 512)
    assert model.arms == ("none", "retrieval")
    assert model.slots == 6
    scratch, limit = engine.limits.max_draft_nodes, engine.limits.memory_bytes
    assert engine.core.target.cache_bytes(model.kv_tokens + scratch) <= limit
    assert engine.core.target.cache_bytes(model.kv_tokens + scratch + 1) > limit
    assert backend.plan()["arms"] == ["none", "retrieval"]


def test_before_the_warm_up_and_after_the_end_it_is_not_ready(tmp_path: Path) -> None:
    with Engine(model=str(write_toy(tmp_path)), dtype="float64", memory="8MiB") as engine:
        backend = EmbeddedBackend(engine)
        assert not backend.is_ready
        backend.warm_up()
        assert backend.is_ready
    assert not backend.is_ready

    async def run() -> None:
        request = engine.request([3, 4, 5])
        with pytest.raises(EngineClosedError):
            await anext(aiter(backend.run(request, 1)))

    asyncio.run(run())
