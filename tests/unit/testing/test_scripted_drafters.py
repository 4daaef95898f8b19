"""The scripted drafters do what their names say."""

from collections.abc import Sequence

import numpy as np
import pytest

from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Drafter
from whiflash.core.rows import DraftRow
from whiflash.sampling.acceptance import walk
from whiflash.testing.drafters import (
    FixedDrafter,
    OracleDrafter,
    RandomDrafter,
    ScriptedDrafter,
    WrongDrafter,
)
from whiflash.testing.hostile import HostileDrafter, HostileError

V, EOS = 64, 2
TEXT = [5, 6, 7, 7, 9, 2, 11, 12, 13, 14, 15, 16]


def _row(length: int = 3, max_nodes: int = 8, max_depth: int = 6) -> DraftRow:
    context = np.arange(10, 10 + length, dtype=np.int32)
    return DraftRow(1, "local", context, max_nodes, max_depth)


def _truth(context: Sequence[int], count: int) -> list[int]:
    start = len(context) - 3
    return TEXT[start : start + count]


def _opened(drafter: ScriptedDrafter) -> ScriptedDrafter:
    drafter.open(1, "local", np.array([1], np.int32), np.zeros(0, np.int32))
    return drafter


def _accepted(tree: DraftTree) -> int:
    return walk(tree, lambda _row, path: TEXT[len(path)]).accepted


def test_all_fulfil_the_protocol() -> None:
    for drafter in (
        OracleDrafter(_truth, V), WrongDrafter(_truth, V), FixedDrafter([]), RandomDrafter(V),
        HostileDrafter(V, EOS),
    ):  # fmt: skip
        assert isinstance(drafter, Drafter)
        _opened(drafter).propose([_row()])
        drafter.close(1)
        drafter.close(1)
        drafter.check_integrity()
        with pytest.raises(AssertionError, match="closed"):
            drafter.propose([_row()])


def test_oracle_is_accepted_as_a_whole_as_chain_and_behind_decoys() -> None:
    (chain,) = _opened(OracleDrafter(_truth, V)).propose([_row()])
    assert chain.is_chain
    assert chain.tokens.tolist() == TEXT[:6]
    (tree,) = _opened(OracleDrafter(_truth, V, num_decoys=1)).propose([_row()])
    assert len(tree) == 8
    assert _accepted(chain) == 6
    assert _accepted(tree) == 4
    assert len(_opened(OracleDrafter(lambda *_: [], V)).propose([_row()])[0]) == 0


def test_wrong_is_never_accepted() -> None:
    (tree,) = _opened(WrongDrafter(_truth, V)).propose([_row()])
    assert len(tree) == 4
    assert _accepted(tree) == 0


def test_fixed_plays_its_script() -> None:
    drafter = _opened(FixedDrafter([DraftTree.chain([5]), DraftTree.empty()]))
    assert [len(drafter.propose([_row()])[0]) for _ in range(3)] == [1, 0, 0]


@pytest.mark.parametrize("is_tree", [True, False])
def test_random_is_ragged_well_formed_and_repeatable(is_tree: bool) -> None:
    drafter = _opened(RandomDrafter(V, is_tree))
    sizes, has_branch = set(), False
    for length in range(1, 200):
        (tree,) = drafter.propose([_row(length)])
        again = DraftTree.from_parents(tree.tokens.tolist(), tree.parents.tolist())
        assert again.depths.tolist() == tree.depths.tolist()
        assert tree.max_depth <= 6
        assert len(tree) <= 8
        pairs = list(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)
        assert tree.tokens.tolist() == drafter.propose([_row(length)])[0].tokens.tolist()
        sizes.add(len(tree))
        has_branch |= not tree.is_chain
    assert sizes >= {0, 1, 6}
    assert has_branch is is_tree


def test_hostile_plays_every_kind() -> None:
    drafter = HostileDrafter(V, EOS, raises=True)
    _opened(drafter)
    trees: list[DraftTree] = []
    num_raised = 0
    for length in range(1, 300):
        try:
            trees += drafter.propose([_row(length)])
        except HostileError:
            num_raised += 1
    assert num_raised > 0
    assert all(count > 0 for count in drafter.counts.values()), drafter.counts
    ids = np.concatenate([tree.tokens for tree in trees])
    assert V in ids
    assert ids.min() < 0
    assert any(len(tree) > 8 for tree in trees)
    assert any(tree.max_depth > 6 for tree in trees)
    assert any(len(tree.parents) != len(tree.tokens) for tree in trees)
    assert any(np.isnan(tree.survival).any() for tree in trees)
    assert any(EOS in tree.tokens[:-1] for tree in trees)


def test_engine_faults_are_noticed() -> None:
    drafter = RandomDrafter(V)
    with pytest.raises(AssertionError, match="not open"):
        drafter.propose([_row()])
    _opened(drafter)
    with pytest.raises(AssertionError, match="twice"):
        _opened(drafter)
