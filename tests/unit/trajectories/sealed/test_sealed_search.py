"""The lookup in a sealed segment against a naive search over the runs that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.trajectories.index import LookupBatch, layout
from whiflash.trajectories.index.longest import draft_longest
from whiflash.trajectories.index.sealed_source import SealedSource
from whiflash.trajectories.sealed.ledger import Run
from whiflash.trajectories.sealed.segment import Segment
from whiflash.trajectories.sealed.text import DEAD, LAST, code_at, token_ids
from whiflash.trajectories.sealed.volume import part_of_runs, sealed_data

ODDS = np.full(layout.NUM_CELLS, 0.9, np.float32)
Ids = list[int]
few = st.lists(st.integers(0, 3), min_size=1, max_size=20)
short = st.lists(st.integers(0, 2), min_size=1, max_size=6)
spread = st.lists(st.sampled_from([0, 1, 255, 256, 65_535, 65_536, LAST - 1]), min_size=1)


def segment_of(runs: Sequence[Ids]) -> Segment:
    entries = [Run(n + 1, n, f"r{n}", "", np.array(run, np.int32)) for n, run in enumerate(runs)]
    return Segment(Path("00000001.sealed"), sealed_data([part_of_runs(entries)], ()), 0)


def look(segment: Segment, context: Ids, nodes: int = 8) -> tuple[int, Ids, Ids, Ids]:
    """Matched tokens, drafted tokens, parents, cells."""
    batch = LookupBatch()
    batch.begin([(0, len(context), 0, nodes, nodes)])
    known = context[-layout.MAX_MATCH_TOKENS :]
    batch.tails[0, layout.MAX_MATCH_TOKENS - len(known) :] = known
    draft_longest([SealedSource(segment)], np.zeros(1, np.int64), batch, 0, 1, ODDS, 0.05)
    count = int(batch.summaries[0, layout.NUM_DRAFTED])
    tokens, parents, _, cells = batch.nodes[0, :, :count].tolist()
    return int(batch.winners[0, layout.WINNER_LENGTH]), tokens, parents, cells


def occurrences(runs: Sequence[Ids], word: Ids) -> list[Ids]:
    """What follows each occurrence of a word that something follows."""
    size = len(word)
    return [
        run[i + size :]
        for run in runs for i in range(len(run) - size) if run[i : i + size] == word
    ]  # fmt: skip


def longest_match(runs: Sequence[Ids], context: Ids) -> int:
    for length in range(min(len(context), layout.MAX_MATCH_TOKENS), 0, -1):
        if occurrences(runs, context[-length:]):
            return length
    return 0


def paths(tokens: Ids, parents: Ids) -> list[Ids]:
    found: list[Ids] = [[]]
    for token, parent in zip(tokens, parents, strict=True):
        found.append([*found[parent], token])
    return found[1:]


@settings(max_examples=150, deadline=None)
@given(st.lists(few, min_size=1, max_size=8), few)
def test_the_match_is_the_longest_suffix_and_drafts_follow_it(runs: list[Ids], context: Ids):
    segment = segment_of(runs)
    segment.check_integrity()
    length, tokens, parents, _ = look(segment, context)
    assert length == longest_match(runs, context)
    drafted = paths(tokens, parents)
    follow = occurrences(runs, context[len(context) - length :]) if length else []
    assert all(any(f[: len(path)] == path for f in follow) for path in drafted)
    assert len({tuple(path) for path in drafted}) == len(drafted), "siblings must differ"
    firsts = {f[0] for f in follow}
    if len(follow) <= layout.MAX_SPOTS and len(firsts) <= layout.MAX_CHILDREN:
        best = drafted[0][0] if drafted else None
        counts = {token: sum(f[0] == token for f in follow) for token in firsts}
        assert best is None or best in counts


@settings(max_examples=60, deadline=None)
@given(st.lists(spread, min_size=1, max_size=6), spread)
def test_ids_of_one_to_three_bytes_are_told_apart(runs: list[Ids], context: Ids) -> None:
    segment = segment_of(runs)
    segment.check_integrity()
    assert look(segment, context)[0] == longest_match(runs, context)
    assert token_ids(segment.data.text).tolist() == [token for run in runs for token in run]


@settings(max_examples=120, deadline=None)
@given(st.lists(short, min_size=1, max_size=5), short, st.data())
def test_masked_runs_are_as_if_they_were_not_there(
    runs: list[Ids], context: Ids, data: st.DataObject
) -> None:
    segment = segment_of(runs)
    dead = data.draw(st.lists(st.booleans(), min_size=len(runs), max_size=len(runs)))
    segment.ledger.set_states(np.array(dead), DEAD)
    kept = [run for run, is_dead in zip(runs, dead, strict=True) if not is_dead]
    length, tokens, parents, cells = look(segment, context, 64)
    assert length == longest_match(kept, context)
    if kept:
        _, *others = look(segment_of(kept), context, 64)
        assert drawn(tokens, parents, cells) == drawn(*others)
    else:
        assert tokens == []


def drawn(tokens: Ids, parents: Ids, cells: Ids) -> list[tuple[Ids, int]]:
    """Every path with the odds of its last node, in no order of the search's."""
    return sorted(zip(paths(tokens, parents), cells, strict=True))


def test_nodes_branch_where_continuations_differ_by_their_share_and_recency() -> None:
    runs = [[1, 2, 3, 30]] * 3 + [[1, 2, 4, 40]] * 3
    _, tokens, parents, cells = look(segment_of(runs), [9, 1, 2])
    assert tokens[:2] == [4, 3]  # the latest of equal ones first
    assert parents[:2] == [0, 0]
    assert sorted(tokens) == [3, 4, 30, 40]
    one_sided = look(segment_of([[1, 2, 3]] * 9 + [[1, 2, 4]]), [1, 2])
    assert set(one_sided[1]) == {3, 4}
    assert len(set(one_sided[3])) == 2, "another share is another cell"
    assert cells[0] != one_sided[3][0]


def test_a_frequent_match_is_looked_at_all_over() -> None:
    rng = np.random.default_rng(3)
    runs = [[7, 8, int(token), 5] for token in rng.choice([1, 2], 2000, p=[0.8, 0.2])]
    length, tokens, parents, _ = look(segment_of(runs), [7, 8])
    assert length == 2
    assert {t for t, p in zip(tokens, parents, strict=True) if p == 0} == {1, 2}


def test_a_match_of_more_than_is_ever_looked_at_is_cut() -> None:
    run = list(range(300))
    length, tokens, _, _ = look(segment_of([run]), run[:200])
    assert length == layout.MAX_MATCH_TOKENS
    assert tokens == run[200:208]


def test_no_match_reaches_across_runs() -> None:
    assert look(segment_of([[1, 2], [3, 4]]), [2, 3]) == (1, [4], [0], look_cell())
    assert look(segment_of([[1, 2]]), [1, 2])[0] == 0


def look_cell() -> Ids:
    return look(segment_of([[3, 4]]), [3])[3]


def test_the_order_is_that_of_the_reversed_contexts() -> None:
    segment = segment_of([[5, 1, 2, 3], [4, 1, 2, 9]])
    order, text = segment.data.order.tolist(), segment.data.text
    suffixes = [[int(code_at(text, p)) for p in range(start, 8)] for start in order]
    assert all(left < right for left, right in pairwise(suffixes))
