"""Gate 1 (design.md 5): no drafter, policy, batch mix, chunking, cancellation, prefix hit or
resume changes a text, held to a grammar or not. vllm #41758, #54928; sglang #38009; llama.cpp
#27117."""

from __future__ import annotations

from pathlib import Path

import pytest

from whiflash.engine.reuse import REASONS
from whiflash.target.load import LoadedTarget
from whiflash.testing.tally import Tally
from whiflash.testing.toy_drafters import ToyDrafters
from whiflash.testing.worlds import run_scenario

NUM_ROUNDS = 10_000
MAX_SCENARIOS = 400
MAX_DEPTH = 6
COVERED = (
    "preemptions", "parked", "parked_hits", "window_starts", "mixed_arms", "mixed_drafts",
    "mixed_prefill", "prefix_hits", "inherited_drafts", "dropped_draft_states",
    "denied_draft_states", "shadows", "denied_shadows", "drafter_failures",
    "tap_drafter_failures", "cancelled_mid_draft", "resumed",
    "constrained_rounds", "masked_nodes", "valid_in_grammar",
    *(f"reuse ended: {why}" for why in REASONS),
)  # fmt: skip
"""What must have happened, beside switches in every direction, rounds of every arm and every
policy, and rejections at every depth."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_sequence_rounds_equal_the_plain_loop(
    toy: LoadedTarget, tmp_path: Path
) -> None:
    tally, toys = Tally(), ToyDrafters(tmp_path, toy.target)
    for seed in range(MAX_SCENARIOS):
        run_scenario(seed, toy.target, toy.tokenizer, tally, toys)
        if tally.rounds >= NUM_ROUNDS and not tally.missing(MAX_DEPTH):
            break
    print("\n".join(tally.lines()))
    assert tally.rounds >= NUM_ROUNDS
    tally.require_coverage(MAX_DEPTH)
    assert {name: tally.covered[name] for name in COVERED if not tally.covered[name]} == {}
