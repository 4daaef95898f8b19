"""The engine writes what was recorded, by real forwards, and drafts are accepted against it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from whiflash.bench.forced_engine import ForcedEngine, conversation
from whiflash.bench.forced_suite import Effort, _cut
from whiflash.bench.recordings import RecordedRun, RecordedTurn
from whiflash.config import EngineConfig
from whiflash.core.rows import NONE
from whiflash.engine.build import EngineParts, build_parts
from whiflash.testing.toy import write_toy


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


TEXT = tuple(range(8, 40))
RUN = RecordedRun(
    "tau/4/3",
    (RecordedTurn(ids(3, 4, 5), ids(*TEXT)), RecordedTurn(ids(6, 7), ids(*TEXT))),
)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[EngineParts]:
    config = EngineConfig.of(
        model=str(write_toy(tmp_path)), drafters=("retrieval",), policy="static:arm=retrieval",
        memory="64MiB", plain_share=0.0,
    )  # fmt: skip
    with closing(build_parts(config)) as built:
        yield built


def test_a_conversation_ends_at_the_last_turn_that_fits() -> None:
    whole = conversation(RUN, 69)
    assert [len(turn.prompt) for turn in whole.turns] == [3, 37]
    assert whole.answers == [*TEXT, *TEXT]
    assert whole.num_dropped == 0
    cut = conversation(RUN, 68)
    assert (len(cut.turns), cut.num_dropped) == (1, 1)
    fork = RecordedRun("f", (RUN.turns[0], RecordedTurn(ids(9), ids(1, 2), is_fork=True)))
    assert conversation(fork, 68).turns[1].prompt.tolist() == [9]


@pytest.mark.parametrize(("max_tokens", "turns"), [(None, 2), (33, 2), (32, 1), (8, 1)])
def test_a_suite_ends_with_the_turn_that_reaches_its_tokens(
    max_tokens: int | None, turns: int
) -> None:
    cut = _cut(conversation(RUN, 69), Effort(1, 1, 4, max_tokens))
    assert (len(cut.turns), cut.num_dropped) == (turns, 2 - turns)


def test_earlier_turns_and_taught_runs_are_accepted_though_the_model_would_say_else(
    parts: EngineParts,
) -> None:
    engine, told = ForcedEngine(parts, parts.core), conversation(RUN, 69)
    engine.teach("known", [RUN])
    plain = engine.follow(told, "empty", NONE)
    own, known = engine.follow(told, "empty"), engine.follow(told, "known")
    assert plain.num_asked == 64
    assert plain.num_agreed < 32
    rounds = [sum(usage.rounds for usage in one.usages) for one in (plain, own, known)]
    assert rounds[0] == 62  # a turn's first token is the prefill's
    first, second = own.usages
    assert second.rounds < first.rounds / 2  # the second answer repeats the first
    assert known.usages[0].rounds < first.rounds / 2  # and the store knows both
    assert own.decoded_tokens == plain.decoded_tokens == 62
    parts.core.check_integrity()
