"""Gate 1 for as long as you like: `make soak MINUTES=60`, resumable."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from whiflash.target.load import load_target
from whiflash.testing.tally import Tally
from whiflash.testing.toy import write_toy
from whiflash.testing.toy_drafters import ToyDrafters
from whiflash.testing.worlds import run_scenario

STATE = Path(".bench/exactness_soak.json")
GOAL_ROUNDS = 1_000_000
FIRST_SEED = 1_000_000  # `make test` covers the seeds from 0


def load_tally() -> Tally:
    if not STATE.exists():
        return Tally()
    kept = json.loads(STATE.read_text(encoding="utf-8"))
    return Tally(
        kept["scenarios"],
        kept["choices"],
        kept["rounds"],
        Counter(kept["covered"]),
        Counter({int(depth): n for depth, n in kept["rejected_at"].items()}),
        Counter(kept["arm_rounds"]),
        Counter(kept["switched"]),
        Counter(kept.get("policy_rounds", {})),
    )


def save_tally(tally: Tally) -> None:
    STATE.parent.mkdir(exist_ok=True)
    # Not dataclasses.asdict: it rebuilds a Counter from pairs and breaks it.
    text = json.dumps({field.name: getattr(tally, field.name) for field in fields(tally)})
    fresh = STATE.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(STATE)


@pytest.mark.soak
def test_a_million_sequence_rounds_equal_the_plain_loop(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Goes on where the last run stopped; ends at the goal or when the minutes are over."""
    ends_s = time.monotonic() + 60 * float(pytestconfig.getoption("--soak-minutes"))
    loaded = load_target(str(write_toy(tmp_path / "toy")), dtype="float64")
    toys, tally = ToyDrafters(tmp_path / "drafters", loaded.target), load_tally()
    while tally.rounds < GOAL_ROUNDS and time.monotonic() < ends_s:
        run_scenario(FIRST_SEED + tally.scenarios, loaded.target, loaded.tokenizer, tally, toys)
        if tally.scenarios % 20 == 0:
            save_tally(tally)
            print(f"\r{tally.rounds} of {GOAL_ROUNDS} sequence-rounds", end="", flush=True)
    save_tally(tally)
    print("\n" + "\n".join(tally.lines()))
    assert tally.scenarios > 0
    if tally.rounds >= GOAL_ROUNDS:
        tally.require_coverage(max_depth=7)
