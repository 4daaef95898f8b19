"""The automaton against a search through the text itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.trajectories.index import Automaton, LookupBatch, kernels, layout
from whiflash.trajectories.index.layout import MAX_WALK_LINKS

Run = list[int]
ODDS = np.ones(layout.NUM_CELLS, np.float32)
# Short runs over few ids repeat a lot; no walk is longer than its run, so the cap never binds.
RUNS = st.lists(
    st.integers(1, 4).flatmap(lambda top: st.lists(st.integers(0, top), max_size=MAX_WALK_LINKS)),
    max_size=6,
)


def ids(tokens: Sequence[int]) -> np.ndarray:
    return np.array(tokens, np.int32)


def built(runs: Sequence[Run], is_last_open: bool = False) -> Automaton:
    automaton = Automaton()
    for number, run in enumerate(runs):
        automaton.extend(ids(run))
        if not (is_last_open and number == len(runs) - 1):
            automaton.end_run()
    return automaton


def naive(runs: Sequence[Run], word: Run, is_last_open: bool = False) -> tuple[int, int]:
    """(occurrences, position of the last token of the latest one that the run goes on after)."""
    count, latest, start = 0, -1, 0
    for number, run in enumerate(runs):
        for end in range(len(word), len(run) + 1):
            if run[end - len(word) : end] == word:
                is_at_end = end == len(run)
                count += not (is_at_end and is_last_open and number == len(runs) - 1)
                latest = latest if is_at_end else start + end - 1
        start += len(run)
    return count, latest


def words_of(runs: Sequence[Run]) -> list[Run]:
    words = {tuple(r[i:j]) for r in runs for i in range(len(r)) for j in range(i + 1, i + 6)}
    return [list(word) for word in sorted(words)]


@settings(max_examples=150, deadline=None)
@given(RUNS, st.booleans())
def test_counts_and_latest_positions_are_exact(runs: list[Run], is_last_open: bool) -> None:
    automaton = built(runs, is_last_open)
    automaton.check_integrity()
    for word in words_of(runs):
        found = (automaton.count(ids(word)), automaton.latest(ids(word)))
        assert found == naive(runs, word, is_last_open), word


@settings(max_examples=60, deadline=None)
@given(RUNS, st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_it_holds_what_occurs_within_a_run_and_nothing_else(runs: list[Run], word: Run) -> None:
    occurs = any(run[i : i + len(word)] == word for run in runs for i in range(len(run)))
    assert (built(runs).state_of(ids(word)) != 0) == occurs


def test_no_match_reaches_across_the_end_of_a_run() -> None:
    automaton = built([[1, 2], [3, 4]])
    assert automaton.count(ids([2, 3])) == 0
    assert automaton.count(ids([3, 4])) == 1


@settings(max_examples=60, deadline=None)
@given(RUNS, st.integers(1, 7))
def test_growing_and_trimming_change_nothing(runs: list[Run], bite: int) -> None:
    automaton = Automaton()
    for run in runs:
        for start in range(0, len(run), bite):
            automaton.extend(ids(run[start : start + bite]))
            automaton.take_room(automaton.trimmed())
            automaton.take_room(automaton.room_made(1))
        automaton.end_run()
    automaton.check_integrity()
    whole = built(runs)
    for word in words_of(runs):
        assert automaton.count(ids(word)) == whole.count(ids(word))
        assert automaton.latest(ids(word)) == whole.latest(ids(word))


def test_it_grows_from_small_to_thousands_of_tokens() -> None:
    rng = np.random.default_rng(3)
    run = rng.integers(0, 50, 5000).astype(np.int32)
    automaton = Automaton()
    automaton.extend(run)
    automaton.check_integrity()
    assert len(automaton) == 5000
    pairs = np.stack([run[:-1], run[1:]], 1)
    for pair in pairs[::250]:
        times = int((pairs == pair).all(1).sum())
        assert automaton.count(pair) == times - (pair.tolist() == run[-2:].tolist())


def test_a_looping_model_costs_a_bounded_walk_per_token() -> None:
    """retrieval.md 7: uncapped, 20,000 repeats of one token walk 200 million links."""
    automaton = Automaton()
    automaton.extend(np.full(20_000, 7, np.int32))
    assert automaton.num_links <= MAX_WALK_LINKS * 20_000
    assert automaton.num_links > 20_000  # it did walk
    automaton.extend(ids([8]))  # an edge from every state: room for it is made in one go
    automaton.check_integrity()
    assert automaton.count(ids([7] * 19_999)) == 2
    assert automaton.latest(ids([7] * 20_000)) == 19_999


def test_memory_stays_within_the_live_index_budget() -> None:
    """design.md 10: at most 84 bytes a token, on text that repeats like an agent's."""
    rng = np.random.default_rng(5)
    phrases = [rng.integers(0, 2000, rng.integers(3, 30)) for _ in range(300)]
    text = np.concatenate([phrases[k] for k in rng.zipf(1.3, 3000) % 300]).astype(np.int32)
    automaton = Automaton()
    automaton.extend(text)
    automaton.take_room(automaton.trimmed())
    assert automaton.num_bytes / len(automaton) <= 84


def test_read_only_ids_do_not_compile_the_kernels_again() -> None:
    """A compilation in the middle of serving would stop everything for seconds."""
    automaton = built([[1, 2, 3]])
    num_signatures = len(kernels.append.signatures)
    tokens = ids([4, 5])
    tokens.flags.writeable = False
    automaton.extend(tokens)
    assert automaton.begin_row(asked(tokens), 0, tokens, 0, ODDS, 0.0)
    assert len(kernels.append.signatures) == num_signatures


def asked(context: np.ndarray) -> LookupBatch:
    batch = LookupBatch()
    batch.begin([(0, len(context), 0, 4, 4)])
    return batch
