"""The drafter as the engine uses it: sources, scope, batches, forks, memory, learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.rows import DraftRow, Feedback
from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.drafters.retrieval.tree import RetrievedTree
from whiflash.trajectories.index import TrajectoryIndexes, layout
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord

NONE = np.zeros(0, np.int32)
SHARED_BENCH = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Bench:
    """A drafter with its log and indexes."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.indexes = TrajectoryIndexes(self.log)
        self.drafter = RetrievalDrafter(self.indexes)

    def store(self, namespace: str, *runs: Sequence[int]) -> None:
        self.indexes.live(namespace)
        for run in runs:
            self.log.append(TrajectoryRecord(namespace, "", np.array(run, np.int32)))
        assert self.indexes.flush()

    def open(
        self, number: int, context: Sequence[int], namespace: str = "a",
        prediction: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.drafter.open(
            number, namespace, np.array(context, np.int32), np.array(prediction, np.int32)
        )

    def propose(
        self, number: int, context: Sequence[int], namespace: str = "a", limit: int = 8
    ) -> DraftTree:
        return self.drafter.propose([row(number, context, namespace, limit)])[0]

    def ask(self, context: Sequence[int], namespace: str = "a", **more: Sequence[int]) -> DraftTree:
        """One proposal for a sequence that opens with `context`."""
        self.open(999, context, namespace, **more)
        tree = self.propose(999, context, namespace)
        self.drafter.close(999)
        return tree


def row(number: int, context: Sequence[int], namespace: str = "a", limit: int = 8) -> DraftRow:
    return DraftRow(number, namespace, np.array(context, np.int32), limit, limit)


def same(left: DraftTree, right: DraftTree) -> bool:
    names = ("tokens", "parents", "depths", "survival")
    return left.source == right.source and all(
        np.array_equal(getattr(left, name), getattr(right, name)) for name in names
    )


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.drafter.check_integrity()
    made.indexes.check_integrity()
    made.log.check_integrity()
    made.indexes.close()


# Sources


def test_it_drafts_what_the_context_said_before(bench: Bench) -> None:
    tree = bench.ask([1, 2, 3, 4, 9, 1, 2])
    assert tree.source == "context"
    assert tree.tokens.tolist() == [3, 4, 9, 1, 2]
    assert tree.is_chain


def test_it_drafts_what_an_earlier_run_said(bench: Bench) -> None:
    bench.store("a", [1, 2, 3, 4])
    tree = bench.ask([8, 1, 2])
    assert tree.source == "live"
    assert tree.tokens.tolist() == [3, 4]


def test_an_answer_that_starts_as_predicted_is_drafted_from_its_start(bench: Bench) -> None:
    prediction = [5, 6, 7, 5, 8]
    tree = bench.ask([1, 2, 3], prediction=prediction)
    assert tree.source == "prediction"
    assert tree.tokens.tolist() == prediction
    bench.open(1, [1, 2, 3], prediction=prediction)
    # The second 5 is the latest, but what stands before it tells the first apart.
    assert bench.propose(1, [1, 2, 3, 5]).tokens.tolist() == [6, 7, 5, 8]
    assert bench.propose(1, [1, 2, 3, 9, 7, 5]).tokens.tolist()[0] == 8


def test_it_branches_where_continuations_differ(bench: Bench) -> None:
    bench.store("a", [1, 2, 3, 30], [1, 2, 4, 40], [1, 2, 3, 30], [1, 2, 4, 40])
    tree = bench.ask([1, 2])
    assert sorted(tree.tokens[tree.parents == 0].tolist()) == [3, 4]
    assert sorted(tree.tokens[tree.depths == 2].tolist()) == [30, 40]


def test_nothing_known_is_nothing_drafted(bench: Bench) -> None:
    assert len(bench.ask([1, 2, 3])) == 0
    assert bench.drafter.matched(999) == 0
    bench.open(1, [1, 2, 3, 1, 2])
    bench.propose(1, [1, 2, 3, 1, 2])
    assert bench.drafter.matched(1) == 2


def test_the_source_with_more_expected_tokens_wins(bench: Bench) -> None:
    bench.store("a", [9, 1, 2, 5, 6, 7, 8])
    assert bench.ask([1, 2, 3, 9, 1, 2]).source == "live"  # 3 tokens matched and 4 known
    bench.store("b", [2, 5])
    assert bench.ask([1, 2, 3, 4, 9, 1, 2], "b").source == "context"


# Scope


def test_isolation_in_pairs_the_same_namespace_hits_and_another_does_not(bench: Bench) -> None:
    bench.store("same", [1, 2, 3, 4])
    bench.indexes.live("other")
    assert bench.indexes.flush()
    assert bench.ask([1, 2], "same").tokens.tolist() == [3, 4]
    assert len(bench.ask([1, 2], "other")) == 0


def test_namespaces_in_one_batch_do_not_mix(bench: Bench) -> None:
    bench.store("a", [1, 2, 3])
    bench.store("b", [1, 2, 4])
    spaces = ["b", "a", "c", "b", "a"]
    for number, namespace in enumerate(spaces):
        bench.open(number, [1, 2], namespace)
    rows = [row(number, [1, 2], namespace) for number, namespace in enumerate(spaces)]
    found = [tree.tokens.tolist() for tree in bench.drafter.propose(rows)]
    assert found == [[4], [3], [], [4], [3]]


def test_learned_odds_stay_in_their_namespace(bench: Bench) -> None:
    for namespace in ("a", "b"):
        bench.store(namespace, [1, 2, 3])
    fresh = bench.ask([1, 2], "a").survival[0]
    for _ in range(50):
        tree = bench.ask([1, 2], "a")
        bench.drafter.learn([Feedback(row(999, [1, 2], "a"), tree, (7,), True)])
    assert bench.ask([1, 2], "a").survival[0] < 0.2
    assert bench.ask([1, 2], "b").survival[0] == fresh


def test_a_row_must_be_open_in_its_own_namespace(bench: Bench) -> None:
    bench.open(1, [1, 2], "a")
    for wrong in (row(1, [1, 2], "b"), row(2, [1, 2], "a")):
        with pytest.raises(ValueError, match="not open"):
            bench.drafter.propose([wrong])
    with pytest.raises(ValueError, match="namespace is required"):
        bench.open(3, [1], "")


# Life of a sequence


def test_the_state_of_a_request_dies_with_it(bench: Bench) -> None:
    """llama.cpp #27852: state that outlived its request brought acceptance from 86 % to 11 %."""
    bench.open(1, [1, 2, 3, 4], prediction=[5, 6])
    assert bench.drafter.num_bytes > 0
    bench.drafter.close(1)
    bench.drafter.close(1)
    assert bench.drafter.num_bytes == 0
    assert len(bench.ask([1, 2])) == 0
    assert len(bench.ask([5])) == 0
    bench.open(1, [8, 9, 8])  # the same id again
    assert bench.propose(1, [8, 9, 8]).tokens.tolist() == [9, 8]


def test_a_sequence_absent_from_one_batch_keeps_its_state(bench: Bench) -> None:
    """RBLN vllm-rbln #1084: absent was taken for finished."""
    bench.store("a", [5, 6, 7, 8, 9])
    bench.open(1, [5])
    bench.open(2, [6])
    bench.propose(1, [5])
    bench.propose(2, [6])
    assert bench.propose(1, [5, 6, 7]).tokens.tolist() == [8, 9]


@SHARED_BENCH
@given(st.data())
def test_growing_contexts_and_forks_give_what_a_fresh_sequence_gives(
    bench: Bench, data: st.DataObject
) -> None:
    some = st.lists(st.integers(0, 3), min_size=1, max_size=12)
    bench.store("a", [0, 1, 2, 3, 2, 1, 0, 0, 1, 1, 2, 2, 3, 3])
    context = data.draw(some)
    bench.open(1, context)
    for _ in range(5):
        cut = data.draw(st.integers(0, len(context)))
        is_fork = data.draw(st.booleans())
        context = context[:cut] + data.draw(some) if is_fork else context + data.draw(some)
        assert same(bench.propose(1, context), bench.ask(context)), context
        bench.drafter.check_integrity()


@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 16, 31, 32])
def test_rows_of_a_batch_get_what_they_get_alone(bench: Bench, num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    for namespace in ("a", "b"):
        bench.store(namespace, *(rng.integers(0, 5, 60).tolist() for _ in range(5)))
    contexts = [rng.integers(0, 5, rng.integers(1, 90)).tolist() for _ in range(num_rows)]
    rows = [
        row(number, context, "ab"[number % 2], int(rng.integers(1, 17)))
        for number, context in enumerate(contexts)
    ]
    for one in rows:
        prediction = one.context[::-1] if one.sequence_id % 3 == 0 else NONE
        for number in (one.sequence_id, 100 + one.sequence_id):
            bench.drafter.open(number, one.namespace, one.context, prediction)
    together = bench.drafter.propose(rows)
    for one, tree in zip(rows, together, strict=True):
        twin = dataclasses.replace(one, sequence_id=100 + one.sequence_id)
        assert same(bench.drafter.propose([twin])[0], tree)


@SHARED_BENCH
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=80),
    st.integers(1, 24),
    st.integers(1, 24),
)
def test_trees_are_well_formed_and_within_their_limits(
    bench: Bench, context: list[int], max_nodes: int, max_depth: int
) -> None:
    bench.open(1, context)
    ids = np.array(context, np.int32)
    tree = bench.drafter.propose([DraftRow(1, "a", ids, max_nodes, max_depth)])[0]
    rebuilt = DraftTree.from_parents(tree.tokens.tolist(), tree.parents.tolist())
    assert np.array_equal(rebuilt.depths, tree.depths)
    assert len(tree) <= max_nodes
    assert tree.max_depth <= max_depth
    siblings = list(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True))
    assert len(set(siblings)) == len(siblings)
    above = np.concatenate([[1.0], tree.survival])[tree.parents]
    assert ((tree.survival > 0) & (tree.survival <= above)).all()
    assert (np.diff(tree.survival) <= 0).all()  # the likeliest first, whatever the budget
    assert tree.tokens.dtype == tree.parents.dtype == tree.depths.dtype == np.int32
    assert tree.survival.dtype == np.float32


def test_a_long_context_is_held_to_its_window() -> None:
    log = MemoryLog()
    with TrajectoryIndexes(log) as indexes:
        drafter = RetrievalDrafter(indexes, window_tokens=512)
        context = np.random.default_rng(0).integers(0, 10_000, 20_000).astype(np.int32)
        context[-4:] = context[-204:-200]
        drafter.open(1, "a", context[:5000], NONE)
        tree = drafter.propose([DraftRow(1, "a", context, 8, 8)])[0]
        assert tree.tokens[:4].tolist() == context[-200:-196].tolist()
        for end in range(10_000, 20_000, 100):
            drafter.propose([DraftRow(1, "a", context[:end], 8, 8)])
            drafter.check_integrity()
        assert drafter.num_bytes < 512 * 1.5 * 150


def test_settings_that_make_no_sense_are_refused() -> None:
    with TrajectoryIndexes(MemoryLog()) as indexes:
        for wrong in ({"window_tokens": 3}, {"min_survival": 1.0}):
            with pytest.raises(ConfigError, match="retrieval needs"):
                RetrievalDrafter(indexes, **wrong)


# Learning


def learn(bench: Bench, context: list[int], followed: tuple[int, ...], is_verified: bool) -> None:
    tree = bench.ask(context)
    bench.drafter.learn([Feedback(row(999, context), tree, followed, is_verified)])


@pytest.mark.parametrize("is_verified", [True, False])
def test_survival_rises_with_success_and_falls_with_failure(
    bench: Bench, is_verified: bool
) -> None:
    context = [1, 2, 3, 4, 1, 2]
    start = bench.ask(context).survival
    for _ in range(40):
        learn(bench, context, (3, 4, 1, 2), is_verified)
    risen = bench.ask(context).survival
    assert (risen > start[: len(risen)]).all()
    for _ in range(2000):
        learn(bench, context, (9,), is_verified)
    fallen = bench.ask(context)
    assert len(fallen) == 1  # still proposed, or nothing could ever be learned again
    assert fallen.survival[0] < 0.1


def test_a_source_that_lost_is_still_scored_and_can_come_back(bench: Bench) -> None:
    """Both sources know a continuation; the chosen one fails for ever, the other would not."""
    bench.store("a", [7, 1, 2, *range(50, 58)])
    context = [1, 2, 3, 4, 9, 7, 1, 2]
    assert bench.ask(context).source == "live"
    for _ in range(60):
        learn(bench, context, (3, 4, 9, 7), True)
    assert bench.ask(context).source == "context"
    for _ in range(400):
        learn(bench, context, (50, 51, 52, 53), True)
    assert bench.ask(context).source == "live"


def test_feedback_on_another_drafters_tree_teaches_nothing(bench: Bench) -> None:
    context = [1, 2, 3, 4, 1, 2]
    before = bench.ask(context)
    bench.drafter.learn([Feedback(row(999, context), DraftTree.chain([3, 4]), (9,), True)])
    after = bench.ask(context)
    assert isinstance(after, RetrievedTree)
    assert same(before, after)


def test_feedback_may_come_after_the_sequence_was_closed(bench: Bench) -> None:
    context = [1, 2, 3, 4, 1, 2]
    before = bench.ask(context).survival[0]
    for _ in range(20):
        learn(bench, context, (3,), True)
    assert bench.ask(context).survival[0] > before


def test_cells_tell_sources_lengths_and_shares_apart() -> None:
    from whiflash.trajectories.index.fringe import cell_of

    seen = {
        cell_of(source, length, count, 20, is_latest)
        for source in range(layout.NUM_SOURCES)
        for length in range(1, 100)
        for count in range(1, 21)
        for is_latest in (False, True)
    } | {cell_of(source, length, 1, 1, latest) for source in range(layout.NUM_SOURCES)
         for length in range(1, 100) for latest in (False, True)}  # fmt: skip
    assert seen == set(range(layout.NUM_CELLS))
