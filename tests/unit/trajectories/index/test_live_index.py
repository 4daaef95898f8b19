"""The live index of one namespace: matching, eviction, repeats, readers, threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.errors import ConfigError
from whiflash.trajectories.index import LiveIndex, LookupBatch, layout
from whiflash.trajectories.index.live import MAX_REPEATS, MIN_BYTES
from whiflash.trajectories.record import TrajectoryRecord

ODDS = np.full(layout.NUM_CELLS, 0.9, np.float32)
LARGE = 64 * MIN_BYTES
Run = list[int]


def record(tokens: Sequence[int], namespace: str = "a") -> TrajectoryRecord:
    return TrajectoryRecord(namespace, "", np.array(tokens, np.int32))


def filled(runs: Sequence[Sequence[int]], max_bytes: int = LARGE) -> LiveIndex:
    index = LiveIndex("a", max_bytes)
    for run in runs:
        index.add(record(run))
    return index


def look(index: LiveIndex, reader: int, context: Sequence[int], is_forked: bool = False):
    """(matched tokens, drafted tokens, parent rows) for one row."""
    batch = LookupBatch()
    batch.begin([(reader, len(context), is_forked, 8, 8)])
    known = list(context)[-layout.MAX_MATCH_TOKENS :]
    batch.tails[0, layout.MAX_MATCH_TOKENS - len(known) :] = known
    assert index.lookup(batch, 0, 1, ODDS, 0.05)
    num_nodes = int(batch.summaries[0, layout.NUM_DRAFTED])
    nodes = batch.nodes[0, :, :num_nodes].tolist()
    matched = int(batch.summaries[0, layout.MATCHED])
    return matched, nodes[layout.DRAFT_TOKEN], nodes[layout.PARENT]


def longest_match(runs: Sequence[Run], context: Run) -> int:
    """The longest suffix of `context` that some run holds and goes on after."""
    for length in range(min(len(context), layout.MAX_MATCH_TOKENS), 0, -1):
        word = context[-length:]
        if any(run[i : i + length] == word for run in runs for i in range(len(run) - length)):
            return length
    return 0


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_an_incremental_match_is_the_longest_suffix(data: st.DataObject) -> None:
    run = st.lists(st.integers(0, 3), min_size=1, max_size=20)
    runs, context = [data.draw(run)], data.draw(run)
    index = filled(runs)
    reader = index.open_reader()
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):  # the index changes between two lookups
            runs.append(data.draw(run))
            index.add(record(runs[-1]))
        context = context + data.draw(run)
        matched, tokens, parents = look(index, reader, context)
        assert matched == longest_match(runs, context)
        for path in paths(tokens, parents):
            word = context[len(context) - matched :] + path
            assert any(r[i : i + len(word)] == word for r in runs for i in range(len(r)))
    index.check_integrity()


def paths(tokens: list[int], parents: list[int]) -> list[Run]:
    found: list[Run] = [[]]
    for token, parent in zip(tokens, parents, strict=True):
        found.append([*found[parent], token])
    return found[1:]


def test_a_run_that_comes_while_a_sequence_is_open_is_matched_in_full() -> None:
    index = filled([[1, 2, 3, 4]])
    reader = index.open_reader()
    assert look(index, reader, [5, 6, 7])[0] == 0
    index.add(record([5, 6, 7, 8, 9]))
    assert look(index, reader, [5, 6, 7, 8])[:2] == (4, [9])


def test_the_latest_of_equal_continuations_comes_first() -> None:
    index = filled([[1, 2, 3], [1, 2, 4]])
    _, tokens, parents = look(index, index.open_reader(), [9, 1, 2])
    assert tokens[:2] == [4, 3]
    assert parents[:2] == [0, 0]


def test_a_forked_context_is_matched_afresh() -> None:
    index = filled([[1, 2, 3, 4, 5], [7, 8, 9, 10]])
    reader = index.open_reader()
    assert look(index, reader, [1, 2, 3])[:2] == (3, [4, 5])
    assert look(index, reader, [1, 7, 8, 9], is_forked=True)[:2] == (3, [10])
    assert look(index, reader, [7, 8])[:2] == (2, [9, 10])  # shorter: cannot be an extension


def test_a_context_that_ran_ahead_by_more_than_its_tail_is_matched_afresh() -> None:
    index = filled([list(range(300))])
    reader = index.open_reader()
    look(index, reader, list(range(5)))
    matched, tokens, _ = look(index, reader, list(range(200)))
    assert matched == layout.MAX_MATCH_TOKENS
    assert tokens == list(range(200, 208))


def test_the_oldest_runs_are_evicted_within_the_budget() -> None:
    rng = np.random.default_rng(1)
    runs = [rng.integers(0, 10_000, 100).tolist() for _ in range(80)]
    index = filled(runs, MIN_BYTES)
    index.check_integrity()
    assert index.num_bytes <= MIN_BYTES
    assert index.num_evicted > 0
    reader = index.open_reader()
    assert look(index, reader, runs[0][:10])[1] == []
    assert look(index, reader, runs[-1][:10], is_forked=True)[0] == 10


def test_a_run_longer_than_a_part_is_cut_not_refused() -> None:
    index = filled([list(range(5000))], MIN_BYTES)
    index.check_integrity()
    assert 0 < index.num_tokens < 5000
    assert look(index, index.open_reader(), [0, 1, 2])[0] == 3


def test_identical_runs_are_counted_up_to_a_cap() -> None:
    index = filled([[1, 2, 3]] * 20 + [[1, 2, 4]])
    index.check_integrity()
    assert index.num_tokens == 3 * MAX_REPEATS + 3
    assert index.num_repeats == 20 - MAX_REPEATS


def test_an_evicted_repeat_may_come_again() -> None:
    index = filled([[1, 2, 3]] * MAX_REPEATS)
    assert index.evict_oldest()
    index.check_integrity()
    index.add(record([1, 2, 3]))
    assert index.num_tokens == 3
    assert index.evict_oldest()
    assert not index.evict_oldest()


def test_a_reader_number_that_is_given_out_again_knows_nothing_of_its_last_owner() -> None:
    index = filled([[1, 2, 3, 4]])
    first = index.open_reader()
    look(index, first, [1, 2, 3])
    index.close_reader(first)
    assert index.open_reader() == first
    assert look(index, first, [9, 9, 9, 1])[:2] == (1, [2, 3, 4])
    others = [index.open_reader() for _ in range(20)]
    assert len({first, *others}) == 21
    index.check_integrity()


def test_a_record_of_another_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="another namespace"):
        filled([]).add(record([1], "b"))
    with pytest.raises(ValueError, match="namespace is required"):
        LiveIndex("", LARGE)
    with pytest.raises(ConfigError, match="bytes"):
        LiveIndex("a", 10)


def test_lookups_while_a_thread_adds_find_only_what_was_added() -> None:
    rng = np.random.default_rng(2)
    runs = [rng.integers(0, 6, 400).tolist() for _ in range(150)]
    known = {tuple(run[i : i + 4]) for run in runs for i in range(len(run) - 3)}
    index = LiveIndex("a", 8 * MIN_BYTES)
    writer = threading.Thread(target=lambda: [index.add(record(run)) for run in runs])
    readers = [index.open_reader() for _ in range(4)]
    writer.start()
    num_found = 0
    while writer.is_alive():
        for reader in readers:
            context = runs[rng.integers(len(runs))][: rng.integers(3, 300)]
            batch = LookupBatch()
            batch.begin([(reader, len(context), True, 8, 8)])
            batch.tails[0, -len(context) :] = context[-layout.MAX_MATCH_TOKENS :]
            if index.lookup(batch, 0, 1, ODDS, 0.05) and batch.summaries[0, layout.MATCHED] >= 3:
                word = (*context[-3:], int(batch.nodes[0, layout.DRAFT_TOKEN, 0]))
                assert word in known
                num_found += 1
    writer.join()
    index.check_integrity()
    assert num_found > 0


def test_a_lookup_gives_up_rather_than_wait_for_a_stuck_writer() -> None:
    index = filled([[1, 2, 3]])
    batch = LookupBatch()
    batch.begin([(index.open_reader(), 1, 0, 8, 8)])
    with index._lock:
        started = time.perf_counter()
        assert not index.lookup(batch, 0, 1, ODDS, 0.05)
        assert time.perf_counter() - started < 1
    assert index.num_busy == 1
