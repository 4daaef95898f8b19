"""Learned survival: the prior, what counts as an outcome, products along paths, namespaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.draft import DraftTree
from whiflash.core.rows import DraftRow, Feedback
from whiflash.drafters import survival
from whiflash.drafters.survival import ScoredTree, SurvivalTable, SurvivalTables, cells_of


def scored(
    table: SurvivalTable, tokens: list[int], parents: list[int], probabilities: list[float]
) -> ScoredTree:
    tree = DraftTree.from_parents(tokens, parents)
    cells = cells_of(tree.depths, probabilities, is_sampled=False)
    return table.tree(tree.tokens, tree.parents, tree.depths, cells, "test")


def test_survival_starts_from_the_model_s_own_probability() -> None:
    tree = scored(SurvivalTable(), [1, 2, 3], [0, 1, 0], [0.85, 0.72, 0.07])
    assert tree.survival == pytest.approx([0.85, 0.85 * 0.725, 0.075])
    assert tree.flaw() is None


def test_every_class_of_depth_and_probability_has_a_cell_of_its_own() -> None:
    depths = [*survival.DEPTH_ENDS, 99]
    chances = [*survival.PROBABILITY_ENDS, 1.0]
    cells = {
        int(cells_of([depth], [chance], is_sampled)[0])
        for depth in depths
        for chance in chances
        for is_sampled in (False, True)
    }
    assert cells == set(range(survival.NUM_CELLS))


def test_outcomes_move_the_cell_that_they_fell_under_and_no_other() -> None:
    table = SurvivalTable()
    before = scored(table, [1, 2], [0, 1], [0.85, 0.72]).survival.copy()
    for _ in range(50):
        table.learn(scored(table, [1, 2], [0, 1], [0.85, 0.72]), [9])
    after = scored(table, [1, 2], [0, 1], [0.85, 0.72])
    assert after.survival[0] < 0.1
    assert after.survival[1] / after.survival[0] == pytest.approx(before[1] / before[0], rel=1e-5)


def test_what_lies_behind_a_rejection_or_the_known_text_is_censored() -> None:
    table = SurvivalTable()
    tree = scored(table, [1, 2, 3, 4], [0, 0, 1, 3], [0.5, 0.3, 0.5, 0.5])
    table.learn(tree, [])
    assert table.num_outcomes == 0
    table.learn(tree, [2, 7])
    assert table.num_outcomes == 2  # the two first nodes; node 2 has no children
    table.learn(tree, [1])
    assert table.num_outcomes == 4  # the text does not reach depth 2 yet
    table.learn(tree, [1, 3, 8])
    assert table.num_outcomes == 8


def test_a_thousand_outcomes_still_fade() -> None:
    table = SurvivalTable()
    tree = scored(table, [1], [0], [0.5])
    for _ in range(1000):
        table.learn(tree, [1])
    for _ in range(300):
        table.learn(tree, [2])
        table.check_integrity()
    assert scored(table, [1], [0], [0.5]).survival[0] < 0.25


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cutting_a_tree_keeps_each_node_s_cell(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    parents = [data.draw(st.integers(0, node)) for node in range(count)]
    chances = [data.draw(st.floats(0, 1)) for _ in range(count)]
    tree = scored(SurvivalTable(), list(range(count)), parents, chances)
    mask = np.array([data.draw(st.booleans()) for _ in range(count)])
    kept = tree.keep(mask)
    assert isinstance(kept, ScoredTree)
    assert kept.flaw() is None
    assert kept.cells.tolist() == tree.cells[kept.tokens].tolist()


def test_namespaces_learn_apart() -> None:
    tables = SurvivalTables()
    tree = scored(tables.of("a"), [1], [0], [0.5])
    row = DraftRow(1, "a", np.zeros(1, np.int32), 4, 4)
    tables.learn([Feedback(row, tree, (2,), True), Feedback(row, DraftTree.empty(), (2,), True)])
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
