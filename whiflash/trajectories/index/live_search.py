"""The numba kernels of a lookup in a part of a live index: the longest match, one draft of it.

Most parts can be passed over without a look at their states: by the length that the match had last
time and the tokens since, or by the filter of stretches.
"""

from __future__ import annotations

import numpy as np

from whiflash.trajectories.index import layout as at
from whiflash.trajectories.index.edges import find_child
from whiflash.trajectories.index.fringe import begin_root, keep_better, scratch
from whiflash.trajectories.index.jit import Array, Float, Int, jit
from whiflash.trajectories.index.kernels import match_from
from whiflash.trajectories.index.search import grow, is_followed, note_match, to_continued
from whiflash.trajectories.sealed.grams import longest_possible


@jit
def _occurs(states: Array, edges: Array, slots: Array, tail: Array, size: Int) -> bool:
    """Whether the last `size` tokens occur."""
    state = np.int64(at.ROOT)
    for place in range(len(tail) - size, len(tail)):
        state = find_child(states, edges, slots, state, np.int64(tail[place]))
        if state == 0:
            return False
    return True


@jit
def _searched(
    states: Array, edges: Array, slots: Array, tail: Array, floor: Int, limit: Int
) -> tuple[Int, Int]:
    """State and length of the longest match of at most `limit` tokens, from longer and longer
    tails: what is shorter than the tail cannot be longer in a longer one. (UNKNOWN, floor) if it
    is not longer than `floor`."""
    if not _occurs(states, edges, slots, tail, floor + 1):
        return np.int64(at.UNKNOWN), floor
    size = floor + 1
    while True:
        size = min(max(2 * size, at.MIN_TAIL_TOKENS), limit)
        state, length = match_from(
            states, edges, slots, np.int64(at.ROOT), np.int64(0), tail[len(tail) - size :]
        )
        if length < size or size == limit:
            return state, length


@jit
def find_match(
    states: Array, edges: Array, slots: Array, head: Array, grams: Array, match: Array,
    row: Array, tail: Array, floor: Int,
) -> tuple[Int, Int]:  # fmt: skip
    """State and length of the longest match if it has more than `floor` tokens, else (UNKNOWN, 0).
    `match` keeps what was found, or, with the state UNKNOWN, a length that it cannot exceed."""
    limit = min(row[at.TOTAL], len(tail))
    is_known = is_followed(match, head, row)
    behind = row[at.TOTAL] - match[at.ABSORBED]
    if floor >= limit or (is_known and match[at.MATCH_LENGTH] + behind <= floor):
        return np.int64(at.UNKNOWN), np.int64(0)
    possible = longest_possible(grams, tail, floor)
    if possible <= floor:
        state, length = np.int64(at.UNKNOWN), np.int64(possible)
    elif is_known and match[at.MATCH_STATE] != at.UNKNOWN and behind <= at.MAX_FOLLOWED:
        state, length = match_from(
            states, edges, slots, match[at.MATCH_STATE], match[at.MATCH_LENGTH],
            tail[len(tail) - behind :],
        )  # fmt: skip
    else:
        state, length = _searched(states, edges, slots, tail, floor, limit)
    note_match(match, state, length, head, row)
    return (state, length) if length > floor else (np.int64(at.UNKNOWN), np.int64(0))


@jit
def floor_of(winner: Array, rank: Int) -> Int:
    """As many tokens as a source of that rank must exceed to win: on a tie the newer one does."""
    is_newer = winner[at.WINNER] != at.NOBODY_WON and rank > winner[at.WINNER]
    return np.int64(winner[at.WINNER_LENGTH] - (1 if is_newer else 0))


@jit
def match_rows(
    states: Array, edges: Array, slots: Array, head: Array, grams: Array, matches: Array,
    homes: Array, rows: Array, tails: Array, winners: Array, first: Int, end: Int, rank: Int,
    home: Int,
) -> None:  # fmt: skip
    """See `longest.Source.match`; home: the stamp, or 0 for rows of any home.

    matches: int64 [readers, NUM_MATCH_COLUMNS]; the others are those of `lookup.LookupBatch`."""
    for number in range(first, end):
        reader, winner = rows[number, at.READER], winners[number]
        if (home != 0 and homes[reader] != home) or winner[at.WINNER] == rank:
            continue
        floor = floor_of(winner, rank)
        state, length = find_match(
            states, edges, slots, head, grams, matches[reader], rows[number], tails[number], floor
        )
        if state == at.UNKNOWN:
            continue
        state, length = to_continued(states, state, length)
        if length > floor:
            winner[at.WINNER] = rank
            winner[at.WINNER_LENGTH] = length
            winner[at.WINNER_STATE] = state


@jit
def draft_rows(
    states: Array, edges: Array, slots: Array, text: Array, rows: Array, odds: Array,
    nodes: Array, survival: Array, firsts: Array, summaries: Array, winners: Array, first: Int,
    end: Int, rank: Int, min_survival: Float,
) -> None:  # fmt: skip
    """Drafts for the rows that the part has won, and keeps what promises more."""
    node, found, fringe, fringe_survival, trial, trial_survival = scratch()
    for number in range(first, end):
        if winners[number, at.WINNER] != rank:
            continue
        length = winners[number, at.WINNER_LENGTH]
        begin_root(node, winners[number, at.WINNER_STATE], length)
        num_nodes = grow(states, edges, slots, text, at.LIVE, node, rows[number], odds,
                         min_survival, found, fringe, fringe_survival, trial,
                         trial_survival)  # fmt: skip
        if num_nodes > 0:
            keep_better(at.LIVE, length, num_nodes, trial, trial_survival, nodes[number],
                        survival[number], firsts[number], summaries[number])  # fmt: skip
