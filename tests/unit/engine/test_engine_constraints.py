"""Structured output through the engine's front: compiled off its thread, errors at the caller."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from whiflash import Engine, SamplingParams
from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.core.constraint import ConstraintSpec, JsonAnswer
from whiflash.core.errors import ConfigError, InvalidRequestError
from whiflash.core.protocols import CompiledConstraint, TargetInfo
from whiflash.models.tokenizer import HFTokenizer
from whiflash.testing.constrained import check_text

PROMPT = "the cat sat on the mat. the cat sat on the"
PICK = JsonAnswer('{"enum": [[1, "a"], {"b": null}]}')
PARAMS = SamplingParams(max_tokens=40, temperature=1.0, seed=3)


class WatchedCompiler(GrammarCompiler):
    """Notes who asks; `delay_s` makes it slow."""

    callers: ClassVar[list[str]] = []
    delay_s = 0.0

    def compile(self, spec: ConstraintSpec) -> CompiledConstraint:
        self.callers.append(threading.current_thread().name)
        time.sleep(self.delay_s)
        return super().compile(spec)


@pytest.fixture(scope="module")
def engine(toy_folder: Path) -> Iterator[Engine]:
    with Engine(
        model=str(toy_folder), dtype="float64", memory="64MiB", constraints=WatchedCompiler
    ) as opened:
        yield opened


def test_all_ways_to_ask_say_the_same_valid_text(engine: Engine) -> None:
    text = engine.generate(PROMPT, PARAMS, constraint=PICK).text
    check_text(PICK, text)
    deltas = engine.stream(PROMPT, PARAMS, constraint=PICK)
    assert "".join(delta.text for delta in deltas) == text
    assert asyncio.run(engine.agenerate(PROMPT, PARAMS, constraint=PICK)).text == text
    drafted = engine.generate(PROMPT, PARAMS, constraint=PICK, prediction='{"b":null}')
    assert drafted.text == text


def test_compiling_never_holds_the_engine_up(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    WatchedCompiler.callers.clear()
    engine.generate(PROMPT, PARAMS, constraint=PICK)
    asyncio.run(engine.agenerate(PROMPT, PARAMS, constraint=PICK))
    assert len(WatchedCompiler.callers) == 2
    assert "whiflash-engine" not in WatchedCompiler.callers
    monkeypatch.setattr(WatchedCompiler, "delay_s", 1.5)

    async def both() -> tuple[str, str]:
        slow = asyncio.ensure_future(engine.agenerate(PROMPT, PARAMS, constraint=PICK))
        await asyncio.sleep(0.1)
        quick = (await engine.agenerate(PROMPT, SamplingParams(max_tokens=3))).text
        assert not slow.done(), "the other request waited for the compilation"
        return (await slow).text, quick

    assert len(asyncio.run(both())[1]) > 0


def test_what_cannot_be_honoured_arrives_at_the_caller(engine: Engine) -> None:
    bad = JsonAnswer('{"not": {}}')
    ticket = engine.submit(engine.request(PROMPT, PARAMS, constraint=bad))
    for ask in (
        ticket.result,
        lambda: engine.generate(PROMPT, PARAMS, constraint=bad),
        lambda: list(engine.stream(PROMPT, PARAMS, constraint=bad)),
        lambda: asyncio.run(engine.agenerate(PROMPT, PARAMS, constraint=bad)),
    ):
        with pytest.raises(InvalidRequestError, match="'not' at #") as caught:
            ask()
        assert caught.value.param == "response_format"
    assert engine.generate(PROMPT, SamplingParams(max_tokens=2)).text != ""


def test_without_a_compiler_constraints_are_refused(toy_folder: Path) -> None:
    with (
        Engine(model=str(toy_folder), dtype="float64", memory="64MiB") as plain,
        pytest.raises(InvalidRequestError, match="without a constraint compiler"),
    ):
        plain.generate(PROMPT, PARAMS, constraint=PICK)


def test_a_compiler_that_cannot_be_made_leaves_no_engine_behind(toy_folder: Path) -> None:
    def broken(tokenizer: HFTokenizer, info: TargetInfo) -> GrammarCompiler:
        raise ConfigError("no library")

    before = threading.active_count()
    with pytest.raises(ConfigError, match="no library"):
        Engine(model=str(toy_folder), dtype="float64", memory="64MiB", constraints=broken)
    assert threading.active_count() <= before
