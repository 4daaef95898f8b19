"""The target's own text: resumable, and the same however often it was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from whiflash.core.errors import ConfigError
from whiflash.core.params import SamplingParams
from whiflash.engine.engine import Engine
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import (
    SKIPPED,
    Generations,
    GenerationSettings,
    plain_render,
    read_generations,
    require_text,
)
from whiflash.training.data.shards import read_shard

SETTINGS = GenerationSettings(num_prompts=70, seed=5, max_tokens=12, is_chat=False)


class _Countdown(TimeLimit):
    """Over after some looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__(None)
        self._looks = looks

    @property
    def left_s(self) -> float:
        self._looks -= 1
        return 60.0 if self._looks > 0 else 0.0


def _nobody(_prompt: int, _answer: int) -> None:
    pass


def _finish(folder: Path, engine: Engine, looks: int) -> int:
    """Sittings until all is there."""
    for sitting in range(1, 200):
        generations = Generations(folder, SETTINGS, "t")
        if generations.run(engine, plain_render, _Countdown(looks), _nobody):
            return sitting
    raise AssertionError("it never came to an end")


def _shards(folder: Path) -> list[bytes]:
    return [p.read_bytes() for p in sorted((folder / "generations").glob("*.zst"))]


def test_resumed_equals_uninterrupted(tmp_path: Path, toy_engine: Callable[[], Engine]) -> None:
    engine = toy_engine()
    assert _finish(tmp_path / "one", engine, 10_000) == 1
    assert _finish(tmp_path / "many", engine, 25) > 2
    assert _shards(tmp_path / "one") == _shards(tmp_path / "many")
    assert len(_shards(tmp_path / "one")) == 2


def test_answers_are_the_engines_own(tmp_path: Path, toy_engine: Callable[[], Engine]) -> None:
    engine = toy_engine()
    _finish(tmp_path, engine, 10_000)
    found = list(read_generations(tmp_path))
    assert {g.temperature for g in found} == {0.0, 1.0}
    greedy = next(g for g in found if g.temperature == 0)
    one = engine.generate(greedy.prompt, SamplingParams(max_tokens=12))
    assert one.choices[0].token_ids == greedy.answer


def test_what_the_target_cannot_take_is_skipped(
    tmp_path: Path, toy_engine: Callable[[], Engine]
) -> None:
    """The toy target has no tools, and 512 tokens of one character each."""
    _finish(tmp_path, toy_engine(), 10_000)
    records = [
        record
        for path in sorted((tmp_path / "generations").glob("*.zst"))
        for record in read_shard(path)
    ]
    tools = [record for record in records if record["kind"] == "tools"]
    assert tools
    assert all(record["finish"] == SKIPPED for record in tools)
    assert all(len(r["prompt"]) + 12 <= 512 for r in records)
    assert not [g for g in read_generations(tmp_path) if g.kind == "tools"]


def test_other_settings_are_refused(tmp_path: Path) -> None:
    Generations(tmp_path, SETTINGS, "t")
    with pytest.raises(ConfigError, match="max_tokens = 12, not 13"):
        Generations(tmp_path, replace(SETTINGS, max_tokens=13), "t")
    with pytest.raises(ConfigError, match="target = 't', not 'u'"):
        Generations(tmp_path, SETTINGS, "u")
    with pytest.raises(ConfigError, match="is_chat = False, not True"):
        Generations(tmp_path, replace(SETTINGS, is_chat=True), "t")


def test_too_little_text_is_told(tmp_path: Path) -> None:
    Generations(tmp_path, SETTINGS, "t")
    with pytest.raises(ConfigError, match="fewer than 64 answers"):
        require_text(tmp_path)


def test_text_of_nobody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no generations yet; `whiflash train data "):
        list(read_generations(tmp_path))
