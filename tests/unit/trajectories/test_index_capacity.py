"""The automaton never writes beyond its tables."""

from __future__ import annotations

import random

import numpy as np

from whiflash.trajectories.index import Automaton
from whiflash.trajectories.index.layout import NUM_EDGES, NUM_STATES

# A state of the suffix path gains an edge and is then split with it.
SPLIT_WITH_A_NEW_EDGE = [
    [0, 1, 2, 0, 0, 2, 2, 0, 2, 1, 2, 1, 2, 1, 1, 2, 0, 0, 0],
    [0, 2, 1, 1, 1, 2, 1, 0, 0, 1],
    [0, 0, 2, 2, 2, 0, 0, 1, 0, 2, 1],
]


def grow(runs: list[list[int]]) -> None:
    automaton = Automaton()
    for run in runs:
        for token in run:
            automaton.extend(np.array([token], np.int32))
            assert automaton.head[NUM_EDGES] <= len(automaton.edges)
            assert automaton.head[NUM_STATES] <= len(automaton.states)
        automaton.end_run()
    automaton.check_integrity()


def test_a_state_that_is_split_with_the_edge_it_just_got() -> None:
    """It took one edge more than was asked for, and the last one was written past the table."""
    grow(SPLIT_WITH_A_NEW_EDGE)


def test_many_small_automata_over_few_tokens() -> None:
    rng = random.Random(7)
    for _ in range(400):
        num_tokens = rng.choice([1, 2, 3, 4])
        grow([
            [rng.randrange(num_tokens) for _ in range(rng.randint(1, 24))]
            for _ in range(rng.randint(1, 5))
        ])  # fmt: skip
