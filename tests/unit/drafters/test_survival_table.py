"""Learned survival: the prior, what counts as an outcome, products along paths, namespaces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.draft import DraftTree
from whiflash.core.rows import DraftRow, Feedback
from whiflash.drafters import survival
from whiflash.drafters.survival import (
    ScoredNodes,
    ScoredTree,
    SurvivalTable,
    SurvivalTables,
    cells_of,
)


def nodes_of(
    tokens: Sequence[int], parents: Sequence[int], chances: Sequence[float], rank: int = 0
) -> ScoredNodes:
    tree = DraftTree.from_parents(tokens, parents)
    ranks = np.full(len(tree), rank, np.int32)
    with np.errstate(divide="ignore"):
        log_odds = np.log(np.array(chances, np.float64))
    return ScoredNodes(tree.tokens, tree.parents, tree.depths, log_odds, ranks)


def scored(
    table: SurvivalTable, tokens: Sequence[int], parents: Sequence[int], chances: Sequence[float]
) -> ScoredTree:
    return table.tree(nodes_of(tokens, parents, chances), "test", is_sampled=False)


def test_survival_starts_from_the_model_s_own_confidence() -> None:
    tree = scored(SurvivalTable(), [1, 2, 3], [0, 1, 0], [0.8, 0.52, 0.08])
    assert tree.survival == pytest.approx([0.8, 0.8 * 0.525, 0.075])
    assert tree.flaw() is None


def test_depth_confidence_rank_and_mode_have_cells_of_their_own() -> None:
    depths = (1, 2, 3, 4, 6, 9)
    chances = (0.01, 0.03, 0.07, 0.15, 0.25, 0.4, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
    cells = set()
    for is_sampled in (False, True):
        for rank in (0, 1, 7):
            for depth in depths:
                chain = nodes_of(range(depth), range(depth), [0.5] * depth, rank)
                for chance in chances:
                    chain.log_odds[-1] = np.log(chance)
                    cells.add(int(cells_of(chain, is_sampled=is_sampled)[-1]))
    assert cells == set(range(survival.NUM_CELLS))


def test_outcomes_move_the_cell_that_they_fell_under_and_no_other() -> None:
    table = SurvivalTable()
    before = scored(table, [1, 2], [0, 1], [0.8, 0.7]).survival.copy()
    for _ in range(200):
        table.learn(scored(table, [1, 2], [0, 1], [0.8, 0.7]), (9,))
    after = scored(table, [1, 2], [0, 1], [0.8, 0.7])
    assert after.survival[0] < 0.1
    assert after.survival[1] / after.survival[0] == pytest.approx(before[1] / before[0], rel=1e-5)


def test_what_lies_behind_a_rejection_or_the_known_text_is_censored() -> None:
    table = SurvivalTable()
    tree = scored(table, [1, 2, 3, 4], [0, 0, 1, 3], [0.5, 0.3, 0.5, 0.5])
    for followed, num_outcomes in [((), 0), ((2, 7), 2), ((1,), 4), ((1, 3, 8), 8)]:
        table.learn(tree, followed)
        assert table.num_outcomes == num_outcomes


def test_a_thousand_outcomes_still_fade() -> None:
    table = SurvivalTable()
    tree = scored(table, [1], [0], [0.5])
    for _ in range(2000):
        table.learn(tree, (1,))
    for _ in range(600):
        table.learn(tree, (2,))
        table.check_integrity()
    assert scored(table, [1], [0], [0.5]).survival[0] < 0.4


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cutting_a_tree_keeps_each_node_s_cell(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    parents = [data.draw(st.integers(0, node)) for node in range(count)]
    chances = [data.draw(st.floats(0, 1)) for _ in range(count)]
    tree = scored(SurvivalTable(), range(count), parents, chances)
    mask = np.array([data.draw(st.booleans()) for _ in range(count)])
    kept = tree.keep(mask)
    assert isinstance(kept, ScoredTree)
    assert kept.flaw() is None
    assert kept.cells.tolist() == tree.cells[kept.tokens].tolist()


def test_namespaces_learn_apart_and_from_scored_trees_only() -> None:
    tables = SurvivalTables()
    tree = scored(tables.of("a"), [1], [0], [0.5])
    row = DraftRow(1, "a", np.zeros(1, np.int32), 4, 4)
    foreign = Feedback(row, DraftTree.chain([1]), (2,), True)
    tables.learn([Feedback(row, tree, (2,), True), foreign])
    assert (tables.of("a").num_outcomes, tables.of("b").num_outcomes) == (1, 0)


def test_the_table_used_least_recently_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survival, "MAX_TABLES", 2)
    tables = SurvivalTables()
    kept = tables.of("a")
    tables.of("b")
    tables.of("a")
    tables.of("c")
    tables.check_integrity()
    assert tables.of("a") is kept
