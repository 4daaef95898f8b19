"""A drafter that idled, was cropped or drafts in a batch drafts as one always kept up, alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from whiflash.core.draft import DraftTree
from whiflash.core.params import SamplingParams
from whiflash.core.rows import CatchUp, DraftRow
from whiflash.drafters.dflash import DFlashDrafter
from whiflash.testing.tap_rounds import PlainTarget, TapRounds

SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, seed=7)
GREEDY = SamplingParams()


def prompt_of(seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(250) for _ in range(draw.randrange(1, 40))]


def assert_same(found: DraftTree, expected: DraftTree) -> None:
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.parents.tolist() == expected.parents.tolist()
    assert found.survival.tolist() == expected.survival.tolist()


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("seed", range(4))
def test_idle_stretches_leave_no_trace(
    make_drafter: Callable, target: PlainTarget, seed: int, params: SamplingParams
) -> None:
    """A catch-up over any number of rounds, in any pieces, equals keeping up."""
    draw = random.Random(seed)
    lazy = TapRounds(target, make_drafter(), prompt_of(seed), params)
    steady = TapRounds(target, make_drafter(), prompt_of(seed), params)
    for _ in range(10):
        for rounds in (lazy, steady):
            rounds.plain_round()
        steady.absorb()
        if draw.random() < 0.4:
            lazy.absorb(draw.randrange(lazy.drafter.absorbed(0), len(lazy.ids)))
            lazy.absorb()
            trees = [r.drafter.propose([r.row()])[0] for r in (lazy, steady)]
            assert len(trees[0]) == 7
            assert_same(*trees)


@pytest.mark.parametrize("seed", range(4))
def test_crop_and_absorb_again(make_drafter: Callable, target: PlainTarget, seed: int) -> None:
    """A turn that shares a prefix: crop to it, go on with another text."""
    draw = random.Random(seed)
    first, second = prompt_of(seed), prompt_of(seed)
    second += [draw.randrange(250) for _ in range(6)]
    shared = draw.randrange(0, len(first) + 1)
    drafter = make_drafter()
    other = TapRounds(target, drafter, first[:shared] + [17] * 30)
    other.round()
    drafter.crop(0, shared)
    assert drafter.absorbed(0) == shared
    fresh = TapRounds(target, make_drafter(), second[:shared] + second[shared:])
    fresh.absorb()
    start = drafter.absorbed(0)
    ids = np.array(fresh.ids, np.int32)
    drafter.absorb([CatchUp(0, start, ids[start:], fresh.fused[start:])])
    drafter.check_integrity()
    assert_same(drafter.propose([fresh.row()])[0], fresh.drafter.propose([fresh.row()])[0])


def test_a_window_start_forgets_what_came_before(
    make_drafter: Callable, target: PlainTarget
) -> None:
    rounds = TapRounds(target, make_drafter(), prompt_of(3) + list(range(40)))
    rounds.absorb()
    [whole] = rounds.drafter.propose([rounds.row()])
    first = len(rounds.ids) - 9
    ids = np.array(rounds.ids[first:], np.int32)
    window = CatchUp(0, first, ids, rounds.fused[first:], is_window_start=True)
    fresh = make_drafter()
    fresh.open(0, "tests", ids, ids[:0])
    trees = []
    for drafter in (rounds.drafter, fresh):
        drafter.absorb([window])
        assert drafter.absorbed(0) == len(rounds.ids) - 1
        trees += drafter.propose([rounds.row()])
    assert_same(*trees)
    assert trees[0].tokens.tolist() != whole.tokens.tolist()
    rounds.drafter.crop(0, 3)  # before the window: what lies there was never seen
    assert rounds.drafter.absorbed(0) == 3


@pytest.mark.parametrize("count", [1, 2, 3, 7, 32])
def test_rows_of_a_batch_draft_as_alone(
    make_drafter: Callable, target: PlainTarget, count: int
) -> None:
    """llama.cpp #27117: acceptance collapsed as more sequences drafted at once; every row's draft
    is that of the row alone, whatever its neighbours' lengths, limits and noise."""
    together, alone = make_drafter(), make_drafter()
    rows: list[DraftRow] = []
    backlogs: list[CatchUp] = []
    expected: list[DraftTree] = []
    for number in range(count):
        params = SAMPLED if number % 3 == 1 else GREEDY
        rounds = TapRounds(target, alone, prompt_of(number), params, sequence_id=number)
        backlog = rounds.backlog()
        assert backlog is not None
        backlogs.append(backlog)
        alone.absorb([backlog])
        rows.append(rounds.row(max_nodes=1 + number % 9, max_depth=1 + number % 8))
        expected += alone.propose([rows[-1]])
        together.open(number, "tests", rows[-1].context, rows[-1].context[:0])
    order = list(range(count))
    random.Random(count).shuffle(order)
    together.absorb([backlogs[number] for number in order])
    trees = together.propose([rows[number] for number in order])
    for number, tree in zip(order, trees, strict=True):
        assert_same(tree, expected[number])
        assert len(tree) == min(1 + number % 9, 1 + number % 8, 7)


def held(drafter: DFlashDrafter, sequence_id: int = 0) -> torch.Tensor:
    cache = drafter._open[sequence_id].cache
    return torch.cat([part for layer in (0, 1) for part in cache.read(layer)])


def test_drafting_leaves_no_trace_in_the_cache(make_drafter: Callable, target: PlainTarget) -> None:
    rounds = TapRounds(target, make_drafter(), prompt_of(5))
    rounds.absorb()
    before = held(rounds.drafter).clone()
    trees = [rounds.drafter.propose([rounds.row()])[0] for _ in range(3)]
    assert torch.equal(held(rounds.drafter), before)
    assert_same(trees[0], trees[2])
