"""Drafting along given texts: who may draft, from what, and that every token is counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from whiflash.bench.draft_rules import LEARNED, DraftRule
from whiflash.bench.forced_replay import ForcedReplay, ReplayResult, ReplaySetting
from whiflash.bench.recordings import RecordedRun, RecordedTurn

BOTH = ReplaySetting()
LOCAL = ReplaySetting(has_store=False)
SHARED = ReplaySetting(has_context=False)


def ids(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int32)


def run_of(seed: int, *targets: Sequence[int]) -> RecordedRun:
    """Turns with questions that nobody else asks."""
    random = np.random.default_rng(seed)
    questions = (ids(random.integers(1000, 2000, 5)) for _ in targets)
    turns = (RecordedTurn(q, ids(t)) for q, t in zip(questions, targets, strict=True))
    return RecordedRun(str(seed), tuple(turns))


TEXT = list(range(100, 160))
OTHER = list(range(300, 360))


def result_of(
    setting: ReplaySetting, warm: Sequence[RecordedRun], runs: Sequence[RecordedRun]
) -> ReplayResult:
    with ForcedReplay(setting) as replay:
        replay.warm(warm)
        return replay.measure(runs)


def test_what_an_earlier_run_wrote_is_drafted_from_the_store_alone() -> None:
    warm, run = [run_of(1, TEXT)], [run_of(2, TEXT)]
    local, shared = (result_of(s, warm, run) for s in (LOCAL, SHARED))
    assert local.num_accepted == 0
    assert local.tokens_per_round == 1.0
    assert shared.tokens_per_round > 5
    assert shared.store_share == 1.0
    assert result_of(BOTH, warm, run).accepted_by_source == shared.accepted_by_source


def test_what_the_run_itself_wrote_is_drafted_from_its_context_alone() -> None:
    run = [run_of(1, TEXT, TEXT)]
    assert result_of(SHARED, [], run).num_accepted == 0
    local = result_of(LOCAL, [], run)
    assert local.store_share == 0.0
    assert local.num_accepted > 40


@pytest.mark.parametrize("setting", [BOTH, LOCAL, SHARED])
def test_every_token_behind_a_turns_first_is_counted_once(setting: ReplaySetting) -> None:
    runs = [run_of(n, TEXT[: 7 * n + 1], OTHER[:1], TEXT[5:25]) for n in range(1, 5)]
    result = result_of(setting, runs[:2], runs[2:])
    wanted = sum(len(turn.target) - 1 for run in runs[2:] for turn in run.turns)
    assert result.num_tokens + result.num_ending_tokens == wanted
    assert result.num_ending_rounds == 4, "turns of one token have no round"
    assert result.num_accepted == sum(result.accepted_by_source.values()) <= result.num_drafted


def test_silos_do_not_see_each_other() -> None:
    runs = [run_of(n, TEXT) for n in range(12)]
    apart = replace(BOTH, num_silos=64)
    assert result_of(BOTH, [], runs).num_accepted > 400
    assert result_of(apart, [], runs).num_accepted < 200


def test_a_run_is_seen_after_the_delay_and_not_before() -> None:
    runs = [run_of(n, TEXT) for n in range(3)]
    late = replace(BOTH, delay_runs=2)
    assert result_of(late, runs[:2], runs[2:]).num_accepted == 0
    assert result_of(replace(BOTH, delay_runs=1), runs[:2], runs[2:]).num_accepted > 40


def test_a_prompt_that_was_written_anew_replaces_the_context() -> None:
    fork = RecordedTurn(ids([7, 8, 9]), ids(TEXT), is_fork=True)
    plain = RecordedTurn(ids([7, 8, 9]), ids(TEXT))
    forked = RecordedRun("f", (*run_of(1, TEXT).turns, fork))
    whole = RecordedRun("w", (*run_of(1, TEXT).turns, plain))
    assert result_of(LOCAL, [], [forked]).num_accepted == 0, "what it held is gone"
    assert result_of(LOCAL, [], [whole]).num_accepted > 40


def test_a_rule_that_never_learns_drafts_into_the_void_for_ever() -> None:
    """The learned cut stops: one node costs nothing to propose."""
    random = np.random.default_rng(0)

    def misleading(number: int) -> RecordedRun:
        text = [part for n in range(15) for part in (1, 2, 3, 4, 1000 * number + 500 + n)]
        return run_of(number, text + random.integers(5000, 9000, 5).tolist())

    runs = [misleading(n) for n in range(8)]
    fixed = DraftRule("fixed", 0.0, learns=False, is_chain=True, max_depth=8)
    learned = result_of(replace(SHARED, rule=replace(LEARNED, min_survival=0.3)), [], runs)
    assert learned.wasted < result_of(replace(SHARED, rule=fixed), [], runs).wasted / 2
