"""The chain: limits, the target's noise, refusals to draft, learning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from whiflash.core.params import SamplingParams
from whiflash.core.protocols import Drafter, TapDrafter
from whiflash.core.rows import DraftRow, Feedback
from whiflash.drafters.dflash import DFlashDrafter
from whiflash.sampling.choose import block_maxima, choose
from whiflash.sampling.filters import Filters
from whiflash.sampling.noise import derive_key
from whiflash.testing.tap_rounds import PlainTarget, TapRounds

PROMPT = list(range(100, 130))
SAMPLED = [
    SamplingParams(temperature=0.7, seed=1),
    SamplingParams(temperature=1.0, top_k=8, seed=2),
    SamplingParams(temperature=1.3, top_p=0.9, min_p=0.02, seed=3),
]


@pytest.fixture
def rounds(make_drafter: Callable, target: PlainTarget) -> TapRounds:
    made = TapRounds(target, make_drafter(), PROMPT)
    made.absorb()
    return made


def marginals(rounds: TapRounds) -> np.ndarray:
    drafter = rounds.drafter
    assert isinstance(drafter, DFlashDrafter)
    hidden = drafter._slots([(drafter._open[0], rounds.row())], [7])
    return np.asarray(drafter.parts.head(hidden).double())


def test_it_keeps_the_protocols(rounds: TapRounds) -> None:
    assert isinstance(rounds.drafter, Drafter)
    assert isinstance(rounds.drafter, TapDrafter)


@pytest.mark.parametrize(("nodes", "depth", "length"), [(64, 64, 7), (3, 64, 3), (64, 2, 2)])
def test_limits_cut_the_same_chain(rounds: TapRounds, nodes: int, depth: int, length: int) -> None:
    [whole] = rounds.drafter.propose([rounds.row()])
    [tree] = rounds.drafter.propose([rounds.row(nodes, depth)])
    assert tree.is_chain
    assert tree.tokens.tolist() == whole.tokens[:length].tolist()


@pytest.mark.parametrize("params", SAMPLED)
def test_each_slot_drafts_what_the_target_would_choose_from_its_marginal(
    make_drafter: Callable, target: PlainTarget, params: SamplingParams
) -> None:
    """The target's temperature, filters and noise at the token's own index, by target id."""
    rounds = TapRounds(target, make_drafter(), PROMPT, params)
    rounds.plain_round()
    rounds.absorb()
    [tree] = rounds.drafter.propose([rounds.row()])
    key = derive_key(params.seed or 0, 0, PROMPT)
    filters = Filters.of(params)
    for slot, z in enumerate(marginals(rounds)):
        maxima, index = block_maxima(z), len(rounds.generated) + slot
        if filters.is_off:
            expected = choose(z, maxima, params.temperature, key, index)
        else:
            expected = filters.choose(z.copy(), maxima, key, index)
        assert tree.tokens[slot] == expected


@pytest.mark.parametrize("params", SAMPLED)
def test_drafts_never_change_a_sampled_text(
    make_drafter: Callable, target: PlainTarget, params: SamplingParams
) -> None:
    drafted = TapRounds(target, make_drafter(), PROMPT, params)
    plain = TapRounds(target, make_drafter(), PROMPT, params)
    while len(plain.generated) < 40:
        plain.plain_round()
    assert drafted.run(40) == plain.ids[: len(PROMPT) + 40]
    assert sum(drafted.accepted) > 0


@pytest.mark.parametrize("params", SAMPLED)
def test_a_drafter_that_thinks_like_the_target_is_always_right(
    make_drafter: Callable, target: PlainTarget, params: SamplingParams
) -> None:
    """z-lab/dflash #74: a draft that ignores temperature. Here the head gives the target's own
    logits, so that a wrong index, filter, temperature or id of the noise would show."""
    for seed in range(6):
        drafter = make_drafter()
        rounds = TapRounds(target, drafter, PROMPT, replace(params, seed=seed))
        for _ in range(4):
            logits = target.forward(rounds.ids).logits[-1:]
            drafter.parts = replace(drafter.parts, head=lambda _, logits=logits: logits)
            rounds.round(max_depth=1)
        assert rounds.accepted == [1] * 4


def test_a_long_row_gets_nothing_and_its_neighbour_drafts_on(
    make_drafter: Callable, target: PlainTarget
) -> None:
    drafter = make_drafter("z-lab", context_limit=len(PROMPT) + 1)
    long, short = (TapRounds(target, drafter, PROMPT[n:], sequence_id=n) for n in (0, 5))
    short.absorb()
    trees = drafter.propose([long.row(), short.row()])
    assert [len(tree) for tree in trees] == [0, 7]


def test_a_row_that_lags_is_refused(rounds: TapRounds) -> None:
    rounds.plain_round()
    with pytest.raises(ValueError, match="its root is at"):
        rounds.drafter.propose([rounds.row()])
    with pytest.raises(ValueError, match="not open"):
        rounds.drafter.propose([DraftRow(9, "n", rounds.row().context, 4, 4)])


def test_catch_ups_must_follow_each_other(rounds: TapRounds) -> None:
    rounds.plain_round()
    row = rounds.backlog()
    assert row is not None
    with pytest.raises(ValueError, match="may appear once"):
        rounds.drafter.absorb([row, row])
    rounds.drafter.absorb([row])
    with pytest.raises(ValueError, match="absorbed up to"):
        rounds.drafter.absorb([row])


def test_closed_sequences_are_forgotten(rounds: TapRounds) -> None:
    assert rounds.drafter.absorbed(0) == len(PROMPT)
    for _ in range(2):
        rounds.drafter.close(0)
    assert rounds.drafter.absorbed(0) == 0
    assert rounds.drafter.num_bytes == 0  # type: ignore[attr-defined]


def test_a_broken_network_drafts_nothing(rounds: TapRounds) -> None:
    rounds.drafter._open[0].cache._keys.fill_(torch.nan)  # type: ignore[attr-defined]
    [tree] = rounds.drafter.propose([rounds.row()])
    assert len(tree) == 0


def test_survival_is_learned_from_outcomes(rounds: TapRounds) -> None:
    row = rounds.row()
    [before] = rounds.drafter.propose([row])
    wrong = (int(before.tokens[0]) + 1,)
    rounds.drafter.learn([Feedback(row, before, wrong, True)] * 50)
    [after] = rounds.drafter.propose([row])
    assert (after.survival < before.survival).all()
    [elsewhere] = rounds.drafter.propose([DraftRow(0, "another", row.context, 64, 64)])
    assert elsewhere.survival.tolist() == before.survival.tolist()
