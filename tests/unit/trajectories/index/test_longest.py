"""The lookup in many parts and segments, readers that go on from what they knew, against a search
from nothing and against a naive one over the runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.trajectories.index import LookupBatch, layout
from whiflash.trajectories.index.automaton import no_matches
from whiflash.trajectories.index.longest import Homes, Source, draft_longest
from whiflash.trajectories.index.part import Part
from whiflash.trajectories.index.sealed_source import SealedSource
from whiflash.trajectories.sealed.fences import STRIDE, SearchAids
from whiflash.trajectories.sealed.grams import ANY, longest_possible
from whiflash.trajectories.sealed.ledger import Run
from whiflash.trajectories.sealed.segment import Segment
from whiflash.trajectories.sealed.volume import part_of_runs, sealed_data

ODDS = np.linspace(0.05, 0.95, layout.NUM_CELLS).astype(np.float32)
NUM_READERS = 3
Ids = list[int]


class World:
    """Sources oldest first: segments, then parts; the runs of each."""

    def __init__(self, rng: np.random.Generator, alphabet: int) -> None:
        self._rng = rng
        self._alphabet = alphabet
        self.pool = [self._new(40) for _ in range(4)]
        self.runs: list[list[Ids]] = []
        self.sources: list[Source] = []
        for number in range(2):
            runs = [self.run() for _ in range(6)]
            entries = [
                Run(n + 1, n, "r", "", np.array(run, np.int32)) for n, run in enumerate(runs)
            ]
            data = sealed_data([part_of_runs(entries)], ())
            self._add(runs, SealedSource(Segment(Path(f"{number + 1:08d}.sealed"), data, 0)))
        for _ in range(3):
            self._add([], Part.empty(NUM_READERS))
            for _ in range(4):
                self.grow()

    def _add(self, runs: list[Ids], source: Source) -> None:
        self.runs.append(runs)
        self.sources.append(source)

    def _new(self, size: int) -> Ids:
        return self._rng.integers(0, self._alphabet, size).tolist()

    def phrase(self) -> Ids:
        """Known or new tokens."""
        if self._rng.random() < 0.3:
            return self._new(int(self._rng.integers(1, 6)))
        phrase = self.pool[int(self._rng.integers(len(self.pool)))]
        start = int(self._rng.integers(len(phrase)))
        return phrase[start : start + int(self._rng.integers(1, 40))]

    def run(self) -> Ids:
        return [token for _ in range(3) for token in self.phrase()]

    def grow(self) -> None:
        """The newest part takes in a run."""
        run, part = self.run(), self.sources[-1]
        assert isinstance(part, Part)
        done = 0
        tokens = np.array(run, np.int32)
        while done < len(tokens):
            done += part.append(tokens[done:])
            if done < len(tokens):
                part.take_room(part.room_made(8))
        part.automaton.end_run()
        self.runs[-1].append(run)

    def naive(self, context: Ids) -> tuple[int, int]:
        """Rank and length of the longest match, the newest of equal ones."""
        best = (layout.NOBODY_WON, 0)
        for rank, runs in enumerate(self.runs):
            length = max((longest_in(run, context) for run in runs), default=0)
            if length and length >= best[1]:
                best = (rank, length)
        return best


def longest_in(run: Ids, context: Ids) -> int:
    """Of the end of a context that stands in a run with something behind it."""
    best = 0
    for end in range(1, len(run)):
        length = 0
        most = min(end, len(context), layout.MAX_MATCH_TOKENS)
        while length < most and run[end - 1 - length] == context[-1 - length]:
            length += 1
        best = max(best, length)
    return best


def look(sources: list[Source], homes: Homes, contexts: list[Ids], forks: list[int]) -> LookupBatch:
    batch = LookupBatch()
    batch.begin(
        [(n, len(c), f, 8, 8) for n, (c, f) in enumerate(zip(contexts, forks, strict=True))]
    )
    for number, context in enumerate(contexts):
        known = context[-layout.MAX_MATCH_TOKENS :]
        batch.tails[number, layout.MAX_MATCH_TOKENS - len(known) :] = known
    draft_longest(sources, homes, batch, 0, len(contexts), ODDS, 0.05)
    return batch


def anew(sources: list[Source], contexts: list[Ids]) -> LookupBatch:
    """By readers that know nothing yet."""
    kept = {}
    for source in sources:
        if isinstance(source, Part):
            kept[source.stamp] = source.matches
            source.matches = no_matches(NUM_READERS)
    batch = look(sources, np.zeros(NUM_READERS, np.int64), contexts, [0] * len(contexts))
    for source in sources:
        if isinstance(source, Part):
            source.matches = kept[source.stamp]
    return batch


def assert_same(batch: LookupBatch, other: LookupBatch) -> None:
    ranks = [layout.WINNER, layout.WINNER_LENGTH]
    assert batch.winners[:, ranks].tolist() == other.winners[:, ranks].tolist()
    assert batch.summaries.tolist() == other.summaries.tolist()
    for row, count in enumerate(batch.summaries[:, layout.NUM_DRAFTED].astype(int).tolist()):
        assert batch.nodes[row, :, :count].tolist() == other.nodes[row, :, :count].tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 5, 40]))
def test_readers_that_go_on_find_what_a_search_from_nothing_finds(seed: int, alphabet: int) -> None:
    rng = np.random.default_rng(seed)
    world = World(rng, alphabet)
    contexts: list[Ids] = [world.run() for _ in range(NUM_READERS)]
    forks, homes = [0] * NUM_READERS, np.zeros(NUM_READERS, np.int64)
    for _ in range(12):
        batch = look(world.sources, homes, contexts, forks)
        assert_same(batch, anew(world.sources, contexts))
        found = batch.winners[:, [layout.WINNER, layout.WINNER_LENGTH]].tolist()
        assert [tuple(row) for row in found] == [world.naive(context) for context in contexts]
        for number in range(NUM_READERS):
            if rng.random() < 0.1:
                contexts[number] = [*contexts[number][: len(contexts[number]) // 2], *world.run()]
                forks[number] += 1
            elif rng.random() < 0.9:  # else nothing new, or it was not asked in this round
                contexts[number] = contexts[number] + world.phrase()
        if rng.random() < 0.3:
            world.grow()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_the_filter_never_rules_out_what_is_there(seed: int, size: int) -> None:
    world = World(np.random.default_rng(seed), 300)
    for runs, source in zip(world.runs, world.sources, strict=True):
        is_part = isinstance(source, Part)
        grams = source.grams if is_part else source._segment.aids.grams  # type: ignore[attr-defined]
        for run in runs:
            for end in range(size, len(run)):
                tail = np.zeros(layout.MAX_MATCH_TOKENS, np.int32)
                tail[-size:] = run[end - size : end]
                assert longest_possible(grams, tail, size - 1) >= size


def test_the_filter_rules_out_most_of_what_is_not_there() -> None:
    rng = np.random.default_rng(1)
    data = sealed_data(
        [part_of_runs([Run(1, 1, "r", "", rng.integers(0, 40_000, 20_000).astype(np.int32))])], ()
    )
    grams = SearchAids.of(data.text, data.order).grams
    tails = rng.integers(0, 40_000, (2_000, layout.MAX_MATCH_TOKENS)).astype(np.int32)
    found = [longest_possible(grams, tail, 9) for tail in tails]
    assert found.count(ANY) < 0.25 * len(tails)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 40, 3_000]))
def test_fences_lead_to_the_same_place_as_a_search_of_all(seed: int, alphabet: int) -> None:
    """Segments of many strides, contexts of 1 token and more."""
    rng = np.random.default_rng(seed)
    runs = [rng.integers(0, alphabet, 200).tolist() for _ in range(8 * STRIDE // 200 + 1)]
    entries = [Run(n + 1, n, "r", "", np.array(run, np.int32)) for n, run in enumerate(runs)]
    segment = Segment(Path("00000001.sealed"), sealed_data([part_of_runs(entries)], ()), 0)
    assert len(segment.aids.fences) >= 8
    for _ in range(20):
        run = runs[int(rng.integers(len(runs)))]
        start, size = int(rng.integers(150)), int(rng.integers(1, 40))
        context = rng.integers(0, alphabet, int(rng.integers(3))).tolist() + run[start:][:size]
        batch = look([SealedSource(segment)], np.zeros(1, np.int64), [context], [0])
        best = max(longest_in(run, context) for run in runs)
        assert batch.winners[0, layout.WINNER_LENGTH] == best
