"""A row that outgrew a drafter's context drafts with the other arms; the drafter's other rows stay
with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from whiflash.core.draft import DraftTree
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.rows import DraftRow
from whiflash.drafters.neural import NeuralDrafter
from whiflash.engine.core import EngineCore
from whiflash.target.load import LoadedTarget
from whiflash.testing.engines import run
from whiflash.testing.plain import plain_answer
from whiflash.testing.toy_drafters import NEURAL, ToyDrafters

MakeCore = Callable[..., EngineCore]
LIMIT = 60
PARAMS = SamplingParams(max_tokens=45, temperature=0.8, ignore_eos=True)
LONG = GenerationRequest(tuple(range(3, 43)), PARAMS, namespace="long")
SHORT = GenerationRequest((9, 8, 7, 6, 5), PARAMS, namespace="short")


class Asked(NamedTuple):
    """One row that a drafter was asked to draft for, and what came."""

    arm: str
    namespace: str
    num_ids: int
    num_nodes: int


def watch(arm: str, drafter: NeuralDrafter[Any], seen: list[Asked]) -> NeuralDrafter[Any]:
    propose = drafter.propose

    def noted(rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = propose(rows)
        seen.extend(
            Asked(arm, row.namespace, len(row.context), len(tree))
            for row, tree in zip(rows, trees, strict=True)
        )
        return trees

    drafter.propose = noted  # type: ignore[method-assign]
    return drafter


@pytest.fixture(scope="module")
def toys(toy: LoadedTarget, tmp_path_factory: pytest.TempPathFactory) -> ToyDrafters:
    return ToyDrafters(tmp_path_factory.mktemp("drafters"), toy.target)


@pytest.mark.parametrize("limited", NEURAL)
def test_a_long_row_falls_to_the_other_arm_alone(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore, limited: str
) -> None:
    """`static` takes the first arm that a row may have."""
    other = "dflash" if limited != "dflash" else "eagle3_chain"
    seen: list[Asked] = []
    made = {limited: toys.make(limited, context_limit=LIMIT), other: toys.make(other)}
    core = make_core(
        {arm: watch(arm, drafter, seen) for arm, drafter in made.items()}, prefill_chunk=64
    )
    done = run(core, LONG, SHORT)
    before = [a for a in seen if a.namespace == "long" and a.num_ids < LIMIT]
    after = [a for a in seen if a.namespace == "long" and a.num_ids >= LIMIT]
    assert {a.arm for a in before} == {limited}
    assert {a.arm for a in after} == {other}
    assert {a.arm for a in seen if a.namespace == "short"} == {limited}
    beside = seen[seen.index(after[0]) :]
    assert sum(a.num_nodes > 0 for a in beside if a.arm == limited) > 5
    assert sum(a.num_nodes > 0 for a in beside if a.arm == other) > 5
    assert core.counters.mixed_arm_steps > 0
    assert core.arms.num_failures == 0
    for asked, (got,) in zip((LONG, SHORT), done, strict=True):
        want = plain_answer(toy.target, toy.tokenizer, asked, 0, 7)
        assert (got.token_ids, got.text) == (want.token_ids, want.text)


def test_a_long_row_that_pins_the_arm_goes_on_plain(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore
) -> None:
    seen: list[Asked] = []
    drafter = toys.make("eagle3_chain", context_limit=LIMIT)
    core = make_core({"eagle3": watch("eagle3", drafter, seen)}, prefill_chunk=64)
    pinned = GenerationRequest(LONG.prompt_ids, PARAMS, drafter="eagle3")
    ((got,),) = run(core, pinned)
    want = plain_answer(toy.target, toy.tokenizer, pinned, 0, 7)
    assert got.token_ids == want.token_ids
    assert max(a.num_ids for a in seen) < LIMIT
    assert core.arms.num_failures == 0
    assert core.counters.arm_rounds["none"] > 5
