"""However late, cut or crowded a drafter is fed: it drafts what an always-synchronised one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from whiflash.core.draft import DraftTree
from whiflash.core.params import SamplingParams
from whiflash.core.rows import DraftRow, DraftSampling
from whiflash.drafters.eagle3 import Eagle3Drafter, Eagle3Options
from whiflash.drafters.scores import draft_sampling
from whiflash.sampling.acceptance import walk
from whiflash.sampling.noise import derive_key
from whiflash.sampling.sampler import SequenceSampler

NO_IDS = np.zeros(0, np.int32)
TREES = {
    "chain": Eagle3Options(tree="chain", depth=5, nodes=5, top_k=1),
    "eagle2": Eagle3Options(tree="eagle2", depth=4, nodes=14, top_k=4),
    "talon": Eagle3Options(tree="talon", depth=6, nodes=16, top_k=4, mu=0.03),
}
VOCAB_SIZE = 256
KEY = derive_key(7, 0, [1, 2, 3])
PARAMS = SamplingParams(temperature=0.8, top_k=40, top_p=0.95)


def random_ids(count: int, seed: int = 0) -> list[int]:
    return list(np.random.default_rng(seed).integers(1, 250, count).tolist())


def open_at(drafter: Eagle3Drafter, *sequences: int) -> None:
    for sequence in sequences:
        drafter.open(sequence, "test", NO_IDS, NO_IDS)


def kept(drafter: Eagle3Drafter, sequence: int) -> tuple[torch.Tensor, torch.Tensor]:
    return drafter._open[sequence].cache.read(0)


def assert_same_tree(found: DraftTree, expected: DraftTree) -> None:
    assert len(found) > 0
    assert found.flaw() is None
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.parents.tolist() == expected.parents.tolist()
    np.testing.assert_allclose(found.survival, expected.survival, atol=1e-6)


def assert_same_kv(drafter: Eagle3Drafter, one: int, other: int) -> None:
    for found, expected in zip(kept(drafter, one), kept(drafter, other), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("cuts", [(39,), (5, 39), (1, 2, 20, 38, 39)])
def test_a_backlog_at_once_equals_round_by_round(
    feeder: Any, tree: str, cuts: tuple[int, ...]
) -> None:
    source = feeder(TREES[tree])
    drafter, ids = source.drafter, random_ids(40)
    open_at(drafter, 1, 2)
    for end in range(1, 40):
        drafter.absorb([source.catch_up(1, ids, end)])
        drafter.propose([source.row(1, ids[: end + 1])])  # a draft leaves no trace
    for end in cuts:
        drafter.absorb([source.catch_up(2, ids, end)])
    assert_same_kv(drafter, 1, 2)
    first, second = (drafter.propose([source.row(number, ids)])[0] for number in (1, 2))
    assert_same_tree(second, first)


@pytest.mark.parametrize("common", [1, 7, 29, 30, 31])
def test_a_cropped_drafter_equals_a_fresh_one(feeder: Any, common: int) -> None:
    """The next turn shares `common` ids. Position common - 1 depended on the id behind it."""
    source = feeder(TREES["eagle2"])
    drafter = source.drafter
    old, new = random_ids(31), [*random_ids(31)[:common], *random_ids(12, seed=5)]
    open_at(drafter, 1, 2)
    drafter.absorb([source.catch_up(1, old)])
    drafter.crop(1, common)
    assert drafter.absorbed(1) == common - 1 if common < 31 else drafter.absorbed(1) == 30
    drafter.absorb([source.catch_up(1, new)])
    drafter.absorb([source.catch_up(2, new)])
    assert_same_kv(drafter, 1, 2)
    first, second = drafter.propose([source.row(1, new), source.row(2, new)])
    assert_same_tree(first, second)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("is_sampled", [False, True])
def test_rows_do_not_depend_on_the_batch(feeder: Any, tree: str, is_sampled: bool) -> None:
    source = feeder(TREES[tree])
    drafter: Eagle3Drafter = source.drafter
    texts = [random_ids(3 + (7 * n) % 30, seed=n) for n in range(32)]
    open_at(drafter, *range(32), *range(100, 132))
    rows: list[DraftRow] = []
    for number, ids in enumerate(texts):
        sampling = draft_sampling(PARAMS, derive_key(number, 0, ids), number % 5)
        limits = (3 + number % 14, 1 + number % 6)
        context = np.array(ids, np.int32)
        rows.append(DraftRow(number, "test", context, *limits, sampling if is_sampled else None))
    alone = []
    for number, row in enumerate(rows):
        drafter.absorb([source.catch_up(number, texts[number])])
        alone.append(drafter.propose([row])[0])
    drafter.absorb([source.catch_up(100 + n, ids) for n, ids in enumerate(texts)])
    for number in range(32):
        assert_same_kv(drafter, number, 100 + number)
    for count in range(1, 33):
        for found, expected in zip(drafter.propose(rows[:count]), alone, strict=False):
            assert_same_tree(found, expected)


def test_a_window_equals_a_text_that_starts_there(feeder: Any) -> None:
    """Rotary positions are relative: the same taps further on give the same drafts."""
    source = feeder(TREES["eagle2"])
    drafter, ids = source.drafter, random_ids(40)
    open_at(drafter, 1, 2)
    window = source.catch_up(1, ids, start=25)
    drafter.absorb([window])
    assert (drafter.absorbed(1), drafter._open[1].cache.length) == (39, 14)
    moved = type(window)(2, 0, window.token_ids, window.fused)
    drafter.absorb([moved])
    first = drafter.propose([source.row(1, ids)])[0]
    second = drafter.propose([source.row(2, ids[25:])])[0]
    assert first.tokens.tolist() == second.tokens.tolist()
    assert first.parents.tolist() == second.parents.tolist()
    drafter.crop(1, 20)
    assert drafter._open[1].cache.length == 0


def test_a_row_over_the_context_limit_is_left_out_alone(feeder: Any) -> None:
    source = feeder(Eagle3Options(tree="chain", depth=5, nodes=5, top_k=1, context_limit=20))
    drafter = source.drafter
    assert drafter.context_limit == 20
    open_at(drafter, 1, 2, 3)
    texts = {1: random_ids(20), 2: random_ids(18), 3: random_ids(10)}
    drafter.absorb([source.catch_up(number, ids) for number, ids in texts.items()])
    trees = drafter.propose([source.row(number, ids) for number, ids in texts.items()])
    assert [len(tree) for tree in trees] == [0, 2, 5]


def test_what_the_engine_must_not_do_is_refused(feeder: Any) -> None:
    source = feeder(TREES["chain"])
    drafter, ids = source.drafter, random_ids(12)
    with pytest.raises(ValueError, match="not open"):
        drafter.propose([source.row(1, ids)])
    open_at(drafter, 1)
    with pytest.raises(ValueError, match="root is at 11"):
        drafter.propose([source.row(1, ids)])
    backlog = source.catch_up(1, ids)
    with pytest.raises(ValueError, match="once"):
        drafter.absorb([backlog, backlog])
    drafter.absorb([backlog])
    with pytest.raises(ValueError, match="starts at 0"):
        drafter.absorb([backlog])
    with pytest.raises(ValueError, match="another root"):
        drafter.propose([source.row(1, [*ids[:-1], ids[-1] + 1])])
    with pytest.raises(ValueError, match="fused tap"):
        drafter.absorb([type(backlog)(1, 11, backlog.token_ids, backlog.fused[:3])])
    drafter.close(1)
    drafter.close(1)
    assert drafter.absorbed(1) == 0


def test_sampled_drafts_are_what_the_target_s_rule_makes_of_the_drafter_s_logits(
    feeder: Any,
) -> None:
    """The first node of every level-1 set is the token the sampler would choose from the draft
    logits, filters, noise and all; siblings are distinct."""
    source = feeder(TREES["eagle2"])
    drafter: Eagle3Drafter = source.drafter
    ids, params = random_ids(15), SamplingParams(temperature=4.0, top_k=40, top_p=0.95)
    open_at(drafter, 1)
    drafter.absorb([source.catch_up(1, ids)])
    with torch.inference_mode():
        logits = drafter._first_step([(drafter._open[1], source.row(1, ids))])[1][0]
    full = torch.full((VOCAB_SIZE,), -torch.inf)
    full[torch.from_numpy(drafter._vocabulary.target_ids)] = logits
    seen = set()
    for index in range(40):
        sampling = draft_sampling(params, KEY, index)
        tree = drafter.propose([source.row(1, ids, sampling)])[0]
        first_level = tree.tokens[tree.depths == 1].tolist()
        sampler = SequenceSampler(params, KEY, ids, VOCAB_SIZE, [])
        assert first_level[0] == sampler.sample(full, [0] * index)
        assert len(set(first_level)) == len(first_level)
        seen.add(first_level[0])
    assert len(seen) > 3


def test_nothing_is_said_of_temperature_zero() -> None:
    assert draft_sampling(SamplingParams(), KEY, 3) is None
    assert "secret" not in repr(draft_sampling(PARAMS, KEY, 3))
    assert KEY.secret.hex() not in repr(draft_sampling(PARAMS, KEY, 3))


def sampled_text(
    model: PreTrainedModel,
    source: Any,
    prompt: list[int],
    num_tokens: int,
    sampling: Callable[[int], DraftSampling | None],
) -> tuple[list[int], int]:
    """(a text at T > 0, accepted nodes), drafting with what `sampling` tells of a row."""
    drafter: Eagle3Drafter = source.drafter
    sampler = SequenceSampler(PARAMS, KEY, prompt, VOCAB_SIZE, [])
    generated: list[int] = []

    def choose(tokens: list[int]) -> int:
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1]
        return sampler.sample(logits, tokens)

    generated.append(choose([]))
    open_at(drafter, 1)
    num_accepted = 0
    while len(generated) < num_tokens:
        ids = [*prompt, *generated]
        drafter.absorb([source.catch_up(1, ids)])
        tree = drafter.propose([source.row(1, ids, sampling(len(generated)))])[0]
        accepted = walk(tree, lambda _, path: choose([*generated, *path]))  # noqa: B023  (called at once)
        num_accepted += accepted.accepted
        generated += accepted.tokens
    return generated[:num_tokens], num_accepted


def test_the_text_at_a_temperature_does_not_depend_on_drafts(
    golden: Any, toy_target: PreTrainedModel, feeder: Any
) -> None:
    """Told or not told of the noise: the same text; told, more is accepted."""
    prompt = golden("e2e")["A.prompt_ids"].flatten().tolist()
    told = sampled_text(
        toy_target, feeder(TREES["chain"]), prompt, 60, lambda n: draft_sampling(PARAMS, KEY, n)
    )
    untold = sampled_text(toy_target, feeder(TREES["chain"]), prompt, 60, lambda _: None)
    assert told[0] == untold[0]
    assert told[1] >= untold[1]
    assert told[1] > 0


def test_nan_logits_draft_nothing(feeder: Any) -> None:
    source = feeder(TREES["eagle2"])
    drafter, ids = source.drafter, random_ids(12)
    open_at(drafter, 1, 2)
    drafter.absorb([source.catch_up(1, ids), source.catch_up(2, ids)])
    drafter._open[1].last_fused = torch.full((64,), torch.nan)
    for sampling in (None, draft_sampling(PARAMS, KEY, 1)):
        broken, whole = drafter.propose([source.row(n, ids, sampling) for n in (1, 2)])
        assert len(broken) == 0
        assert len(whole) > 0


def test_a_cut_before_the_window_leaves_nothing_that_stands_behind_it(feeder: Any) -> None:
    """A turn that shares only what lies before the drafter's window: it drafts again at once."""
    source = feeder(TREES["chain"])
    drafter, ids = source.drafter, random_ids(40)
    open_at(drafter, 1)
    drafter.absorb([source.catch_up(1, ids, start=20)])
    drafter.crop(1, 12)
    assert drafter.absorbed(1) < 12
    other = [*ids[:12], *random_ids(9, seed=4)]  # its root is where the window began
    drafter.absorb([source.catch_up(1, other)])
    assert drafter.absorbed(1) == len(other) - 1
    (tree,) = drafter.propose([source.row(1, other)])
    assert len(tree) > 0
