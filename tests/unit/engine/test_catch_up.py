"""Lazy Catch-up: who is not chosen is not run, and who is absorbs all that it missed at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.rows import CatchUp
from whiflash.engine.core import EngineCore
from whiflash.target.load import LoadedTarget
from whiflash.testing.engines import run
from whiflash.testing.policies import Rhythm
from whiflash.testing.toy_drafters import ToyDrafters

IDLE_ROUNDS = 11
PARAMS = SamplingParams(max_tokens=40, temperature=0.8, ignore_eos=True)
PROMPTS = (tuple(range(3, 33)), tuple(range(8, 28)), (9, 8, 7))


@pytest.mark.parametrize("name", ["eagle3_chain", "dflash"])
def test_all_backlogs_are_absorbed_in_one_call(
    toy: LoadedTarget, make_core: Callable[..., EngineCore], tmp_path: Path, name: str
) -> None:
    drafter = ToyDrafters(tmp_path, toy.target).make(name)
    absorb, calls = drafter.absorb, []

    def noted(rows: Sequence[CatchUp]) -> None:
        calls.append({r.sequence_id: (r.start, r.start + len(r.token_ids) - 1) for r in rows})
        absorb(rows)

    drafter.absorb = noted  # type: ignore[method-assign]
    policy = Rhythm(name, first=IDLE_ROUNDS + 1)
    core = make_core({name: drafter}, policy, prefill_chunk=200)
    run(core, *(GenerationRequest(prompt, PARAMS) for prompt in PROMPTS))
    first, *later = calls
    assert sorted(first.values()) == sorted((0, len(p) + IDLE_ROUNDS) for p in PROMPTS)
    ends = {sequence: end for sequence, (_, end) in first.items()}
    for call in later:
        for sequence, (start, end) in call.items():
            assert start == ends[sequence] < end <= start + PARAMS.max_tokens
            ends[sequence] = end
    assert len(later) > 5
    assert core.drafting.catch_ups.num_window_starts == core.arms.num_failures == 0
