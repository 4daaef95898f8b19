"""The embedded engine as users call it: sync and async, batch and streaming, errors, closing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from whiflash import Engine, SamplingParams
from whiflash.core.errors import ConfigError, EngineClosedError, InvalidRequestError
from whiflash.core.results import Delta, FinishReason
from whiflash.obs.round_log import read_rounds

PARAMS = SamplingParams(max_tokens=16, ignore_eos=True)
PROMPT = "the cat sat on the mat. the cat sat on the"


@pytest.fixture(scope="module")
def engine(toy_folder: Path) -> Iterator[Engine]:
    with Engine(model=str(toy_folder), dtype="float64", memory="64MiB") as opened:
        yield opened


def test_sync_async_batch_and_stream_say_the_same(engine: Engine) -> None:
    text = engine.generate(PROMPT, PARAMS).text
    assert len(text) == 16
    assert [g.text for g in engine.generate_batch([PROMPT, PROMPT], PARAMS)] == [text, text]
    deltas = list(engine.stream(PROMPT, PARAMS))
    assert "".join(delta.text for delta in deltas) == text
    assert deltas[-1].finish_reason is FinishReason.LENGTH

    async def both() -> tuple[str, str]:
        whole = await engine.agenerate(PROMPT, PARAMS)
        parts = [delta.text async for delta in engine.astream(PROMPT, PARAMS)]
        return whole.text, "".join(parts)

    assert asyncio.run(both()) == (text, text)


def test_drafting_on_and_off_say_the_same(engine: Engine) -> None:
    params = SamplingParams(max_tokens=40, temperature=0.8, seed=5)
    drafted = engine.generate(PROMPT, params, drafter="retrieval")
    plain = engine.generate(PROMPT, params, drafter="none")
    assert drafted.choices[0].token_ids == plain.choices[0].token_ids
    assert drafted.choices[0].usage.arms["retrieval"].drafted > 0
    assert set(plain.choices[0].usage.arms) == {"none"}


def test_the_seed_that_was_drawn_is_returned_and_repeats_the_text(engine: Engine) -> None:
    params = SamplingParams(max_tokens=12, temperature=1.2)
    first = engine.generate(PROMPT, params).choices[0]
    again = SamplingParams(max_tokens=12, temperature=1.2, seed=first.seed)
    assert engine.generate(PROMPT, again).choices[0].token_ids == first.token_ids


def test_leaving_a_stream_cancels_its_request(engine: Engine) -> None:
    stream = engine.stream(PROMPT, SamplingParams(max_tokens=200, ignore_eos=True))
    assert isinstance(next(stream), Delta)
    stream.close()  # type: ignore[attr-defined]
    assert engine.generate(PROMPT, PARAMS).choices[0].finish_reason is FinishReason.LENGTH


def test_cancelling_the_task_cancels_the_request(engine: Engine) -> None:
    async def leave() -> None:
        task = asyncio.create_task(
            engine.agenerate(PROMPT, SamplingParams(max_tokens=300, ignore_eos=True))
        )
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert engine.generate(PROMPT, PARAMS).choices[0].finish_reason is FinishReason.LENGTH


def test_many_threads_share_one_engine(engine: Engine) -> None:
    expected = engine.generate(PROMPT, PARAMS).text
    texts: list[str] = []

    def ask() -> None:
        texts.append(engine.generate(PROMPT, PARAMS).text)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert texts == [expected] * 8


def test_a_prediction_is_a_hint(engine: Engine) -> None:
    plain = engine.generate(PROMPT, PARAMS, drafter="none", namespace="hint-a").text
    hinted = engine.generate(PROMPT, PARAMS, prediction=plain, drafter="retrieval",
                             namespace="hint-b")  # fmt: skip
    assert hinted.text == plain


def test_wrong_requests_are_refused(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError, match="empty"):
        engine.generate("", PARAMS)
    with pytest.raises(InvalidRequestError, match="beam_width"):
        engine.generate(PROMPT, PARAMS, beam_width=4)
    with pytest.raises(InvalidRequestError, match="eagle3"):
        engine.generate(PROMPT, PARAMS, drafter="eagle3")


def test_the_plan_says_what_was_resolved(engine: Engine) -> None:
    engine.generate(PROMPT, PARAMS)
    plan = json.loads(json.dumps(engine.plan()))
    assert plan["counters"]["rounds"] > 0
    assert plan["arms"] == ["none", "retrieval"]
    assert plan["target"]["dtype"] == "float64"
    assert plan["target"]["exactness"] in ("bitwise", "epsilon")
    assert plan["policy"] == "goodput"
    assert plan["cache_folder"]


def test_a_closed_engine_says_so(toy_folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "rounds.zst"
    engine = Engine(model=str(toy_folder), dtype="float64", memory="64MiB", round_log=log)
    ticket = engine.submit(engine.request(PROMPT, SamplingParams(max_tokens=400, ignore_eos=True)))
    engine.generate(PROMPT, PARAMS)
    engine.close()
    engine.close()
    with pytest.raises(EngineClosedError):
        ticket.result(timeout_s=5)
    with pytest.raises(EngineClosedError):
        engine.generate(PROMPT)
    rounds = [record for record in read_rounds(log) if record["kind"] == "round"]
    assert len(rounds) >= 10
    assert {"arm", "drafted", "emitted", "entropy", "verify_ms"} <= set(rounds[0])


def test_unknown_arms_and_policies_are_refused_at_start(toy_folder: Path) -> None:
    with pytest.raises(ConfigError, match="retrieval"):
        Engine(model=str(toy_folder), drafters=("medusa",))
    with pytest.raises(ConfigError, match="goodput"):
        Engine(model=str(toy_folder), policy="greedy")
