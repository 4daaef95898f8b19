"""DDTree as a drafter: options, limits, noise, and the chain inside the tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.params import SamplingParams
from whiflash.core.protocols import TapDrafter
from whiflash.drafters.ddtree import DDTreeOptions
from whiflash.drafters.dflash import DFlashDrafter, DFlashOptions, load
from whiflash.drafters.spec import DrafterSpec
from whiflash.models.draft.target_parts import TargetParts
from whiflash.testing.tap_rounds import PlainTarget, TapRounds

PROMPT = list(range(60, 90))
SAMPLED = [
    SamplingParams(temperature=0.6, seed=1),
    SamplingParams(temperature=1.0, top_k=3, seed=2),
    SamplingParams(temperature=1.0, top_p=0.9, seed=3),
]


@pytest.fixture
def chain_drafter(golden: Path, target: PlainTarget) -> DFlashDrafter:
    return DFlashDrafter(load(golden / "draft", TargetParts.of_model(target.model, 512)))


def proposal(rounds: TapRounds, max_nodes: int = 64, max_depth: int = 64) -> DraftTree:
    rounds.absorb()
    return rounds.drafter.propose([rounds.row(max_nodes, max_depth)])[0]


@pytest.mark.parametrize("params", [SamplingParams(), *SAMPLED])
def test_siblings_are_distinct_and_the_first_of_each_depth_is_the_chain_s(
    make_drafter: Callable,
    chain_drafter: DFlashDrafter,
    target: PlainTarget,
    params: SamplingParams,
) -> None:
    tree = proposal(TapRounds(target, make_drafter(40), PROMPT, params))
    chain = proposal(TapRounds(target, chain_drafter, PROMPT, params))
    assert tree.flaw() is None
    pairs = list(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    first: dict[int, int] = {}
    for parent, token, depth in zip(tree.parents, tree.tokens, tree.depths, strict=True):
        if int(parent) not in first:
            first[int(parent)] = int(token)
            assert token == chain.tokens[depth - 1]


@pytest.mark.parametrize("params", SAMPLED)
def test_trees_never_change_a_sampled_text_and_beat_the_chain(
    make_drafter: Callable,
    chain_drafter: DFlashDrafter,
    target: PlainTarget,
    params: SamplingParams,
) -> None:
    tree = TapRounds(target, make_drafter(24), PROMPT, params)
    chain = TapRounds(target, chain_drafter, PROMPT, params)
    assert tree.run(40) == chain.run(40)
    assert len(tree.accepted) < len(chain.accepted)


@pytest.mark.parametrize(("nodes", "depth"), [(1, 9), (5, 9), (100, 2), (3, 1)])
def test_limits_of_the_row_hold(
    make_drafter: Callable, target: PlainTarget, nodes: int, depth: int
) -> None:
    rounds = TapRounds(target, make_drafter(32), PROMPT)
    tree = proposal(rounds, nodes, depth)
    assert len(tree) == min(nodes, 32)
    assert tree.max_depth <= depth


def test_it_keeps_the_protocol(make_drafter: Callable) -> None:
    drafter = make_drafter(4)
    assert isinstance(drafter, TapDrafter)
    assert drafter.name == "ddtree"


def test_options_of_a_spec() -> None:
    spec = DrafterSpec.parse("ddtree:dir,nodes=9,block=4")
    assert DDTreeOptions.of_spec(spec) == DDTreeOptions(9, DFlashOptions(block=4))
    with pytest.raises(ConfigError, match="nodes, block, mask_id"):
        DDTreeOptions.of_spec(DrafterSpec.parse("ddtree:dir,budget=9"))
    with pytest.raises(ConfigError, match="1 node or more"):
        DDTreeOptions(0)
