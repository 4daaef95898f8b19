"""Prompts: many, the same every time, and held-out ones that share no filling with the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.bench.prompts import all_prompts
from whiflash.training.data import phrases, pools
from whiflash.training.data.filler import Filler, part_of
from whiflash.training.data.prompts import HELD_OUT, training_prompt
from whiflash.training.data.templates import TEMPLATES

NUM_PROMPTS = 2000
POOLS = {
    name: value
    for module in (pools, phrases)
    for name, value in vars(module).items()
    if isinstance(value, tuple)
}


def test_thousands_of_prompts_differ() -> None:
    texts = {str(training_prompt(number, seed=0).task) for number in range(NUM_PROMPTS)}
    assert len(texts) > 0.97 * NUM_PROMPTS


@given(st.integers(0, 10**6), st.integers(0, 2**32))
def test_a_prompt_is_the_same_whenever_it_is_asked_for(number: int, seed: int) -> None:
    assert training_prompt(number, seed) == training_prompt(number, seed)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_every_template_separates_the_splits(kind: str) -> None:
    """Held-out prompts take only held-out values, training prompts take none of them."""
    held_out = {v for pool in POOLS.values() for v in part_of(pool, is_held_out=True)}
    for template in TEMPLATES[kind]:
        for seed in range(30):
            for is_held_out in (False, True):
                filler = Filler(str(seed), is_held_out=is_held_out)
                template(filler)
                assert filler.picked, "a template without a value from a pool is in both splits"
                in_held_out = [value in held_out for value in filler.picked]
                assert all(in_held_out) if is_held_out else not any(in_held_out)


@pytest.mark.parametrize("name", POOLS)
def test_pools_hold_each_value_once(name: str) -> None:
    assert len(set(POOLS[name])) == len(POOLS[name])
    assert part_of(POOLS[name], is_held_out=True)


def test_pools_overlap_nowhere() -> None:
    """A value in two pools could be held out in one and trained on in the other."""
    values = [value for pool in POOLS.values() for value in pool]
    twice = sorted({value for value in values if values.count(value) > 1})
    assert not twice


def test_all_kinds_come_in_both_splits_and_temperatures() -> None:
    seen = {(p.kind, p.split, p.temperature) for p in (training_prompt(n, 3) for n in range(3000))}
    assert len(seen) == len(TEMPLATES) * 2 * 2


def test_about_one_prompt_in_twenty_is_held_out() -> None:
    count = sum(training_prompt(n, 0).split == HELD_OUT for n in range(NUM_PROMPTS))
    assert 0.03 < count / NUM_PROMPTS < 0.07


def test_benchmark_prompts_are_not_trained_on() -> None:
    measured = {str(m["content"]) for p in all_prompts() for m in p.messages if m["content"]}
    trained = {
        str(message["content"])
        for number in range(NUM_PROMPTS)
        for message in training_prompt(number, 0).task.messages
    }
    assert not measured & trained
