"""The numba kernels of a lookup in a sealed segment: one search, some occurrences, a draft tree.

A segment is `text`, its suffix array `order`, the `ends` of its runs and their `states`: see
`sealed/text.py`. Positions are those of the reversed text, so that the token behind a match that
ends at position p is the one at p - 1.
"""

from __future__ import annotations

import numpy as np

from whiflash.trajectories.index import layout as at
from whiflash.trajectories.index.fringe import (
    begin_root,
    keep_better,
    note_node,
    push_children,
    scratch,
    take_top,
)
from whiflash.trajectories.index.jit import Array, Float, Int, jit
from whiflash.trajectories.index.live_search import floor_of
from whiflash.trajectories.sealed.fences import fenced_in
from whiflash.trajectories.sealed.grams import longest_possible
from whiflash.trajectories.sealed.text import LAST, LIVE, TOKEN_BYTES, code_at, run_at


@jit
def _matched(text: Array, position: Int, tail: Array, known: Int, limit: Int) -> Int:
    """How many of the context's last tokens stand at a position, given that `known` do."""
    num_tokens = len(text) // TOKEN_BYTES
    while (
        known < limit
        and position + known < num_tokens
        and code_at(text, position + known) == tail[len(tail) - 1 - known]
    ):
        known += 1
    return known


@jit
def _is_before(text: Array, position: Int, tail: Array, known: Int) -> bool:
    """Whether a position that matches `known` tokens and no more sorts before the context."""
    if position + known >= len(text) // TOKEN_BYTES:
        return True
    return bool(code_at(text, position + known) < tail[len(tail) - 1 - known])


@jit
def find_longest(
    text: Array, order: Array, fences: Array, tail: Array, limit: Int
) -> tuple[Int, Int]:
    """The longest suffix of the context, of at most `limit` tokens, that occurs: its length and
    its place in `order`. Manber and Myers 1993: what both borders of the search match is not
    compared again."""
    low, high = fenced_in(fences, len(order), tail, limit)
    low_known, high_known = 0, 0
    best, best_place = 0, 0
    while low < high:
        middle = (low + high) // 2
        position = np.int64(order[middle])
        known = _matched(text, position, tail, min(low_known, high_known), limit)
        if known > best:
            best, best_place = known, middle
        if known == limit:
            break
        if _is_before(text, position, tail, known):
            low, low_known = middle + 1, known
        else:
            high, high_known = middle, known
    return best, best_place


@jit
def _holds(text: Array, order: Array, tail: Array, length: Int, place: Int) -> bool:
    if place < 0 or place >= len(order):
        return False
    return bool(_matched(text, np.int64(order[place]), tail, 0, length) == length)


@jit
def _border(text: Array, order: Array, tail: Array, length: Int, inside: Int, step: Int) -> Int:
    """The last place, going from `inside` by `step` of 1 or -1, at which `length` tokens match:
    strides that double, then halves."""
    stride = 1
    while _holds(text, order, tail, length, inside + step * stride):
        inside += step * stride
        stride *= 2
    while stride > 1:
        stride //= 2
        if _holds(text, order, tail, length, inside + step * stride):
            inside += step * stride
    return inside


@jit
def _take_spots(
    text: Array, order: Array, ends: Array, states: Array, is_masked: bool, begin: Int, end: Int,
    spots: Array,
) -> Int:  # fmt: skip
    """Fills `spots` with occurrences [begin, end) of runs that may be used, spread evenly over
    all; how many."""
    count = end - begin
    num_tries = min(count, at.MAX_MASKED_TRIES if is_masked else at.MAX_SPOTS)
    num_tokens = len(text) // TOKEN_BYTES
    num_spots = 0
    for number in range(num_tries):
        position = np.int64(order[begin + number * count // num_tries])
        if is_masked and states[run_at(ends, position, num_tokens)] != LIVE:
            continue
        spots[num_spots] = position
        num_spots += 1
        if num_spots == at.MAX_SPOTS:
            break
    return num_spots


@jit
def _match(
    text: Array, order: Array, fences: Array, ends: Array, states: Array, is_masked: bool,
    tail: Array, limit: Int, floor: Int, spots: Array,
) -> tuple[Int, Int]:  # fmt: skip
    """The longest match, if longer than `floor` tokens, and the number of `spots` filled. Where
    all that was looked at is masked, the next shorter one."""
    length, place = find_longest(text, order, fences, tail, limit)
    first = last = place
    while length > floor:
        first = _border(text, order, tail, length, first, -1)
        last = _border(text, order, tail, length, last, 1)
        num_spots = _take_spots(text, order, ends, states, is_masked, first, last + 1, spots)
        if num_spots > 0:
            return length, num_spots
        length -= 1
    return 0, 0


@jit
def _children(
    text: Array, spots: Array, owners: Array, num_spots: Int, node: Array, first_child: Int,
    found: Array,
) -> tuple[Int, Int]:  # fmt: skip
    """Groups the node's occurrences by the token that follows, children being numbered from
    `first_child`; how many were found, and the node's occurrences. They pass to the children."""
    num_found, total, latest = 0, 0, -1
    depth = node[at.NODE_DEPTH]
    for number in range(num_spots):
        if owners[number] != node[at.NODE_STATE]:
            continue
        total += 1
        behind = spots[number] - depth
        if depth > 0 and code_at(text, behind) >= LAST:
            continue
        token = code_at(text, behind - 1) & (LAST - 1)
        child = 0
        while child < num_found and found[child, at.CHILD_TOKEN] != token:
            child += 1
        if child == at.MAX_SCANNED:
            continue
        if child == num_found:
            num_found += 1
            found[child, at.CHILD_TOKEN] = token
            found[child, at.CHILD] = first_child + child
            found[child, at.IS_LATEST] = 0
            found[child, at.CHILD_COUNT] = 0
        found[child, at.CHILD_COUNT] += 1
        owners[number] = first_child + child
        if latest < 0 or spots[number] < latest:
            latest = spots[number]
    for number in range(num_spots):
        if spots[number] == latest and owners[number] >= first_child:
            found[owners[number] - first_child, at.IS_LATEST] = 1
    return num_found, total


@jit
def _grow(
    text: Array, spots: Array, owners: Array, num_spots: Int, row: Array, odds: Array,
    min_survival: Float, room: Array,
) -> Int:  # fmt: skip
    """As `search._grow`, from occurrences instead of states; number of nodes in the trial."""
    node, found, fringe, fringe_survival, trial, trial_survival = room
    num_nodes, num_fringe, num_children = 0, np.int64(0), np.int64(1)
    survival = 1.0
    max_nodes = min(row[at.NODES_LIMIT], at.MAX_NODES)
    while num_nodes < max_nodes:
        if node[at.NODE_DEPTH] < row[at.DEPTH_LIMIT]:
            num_found, total = _children(text, spots, owners, num_spots, node, num_children, found)
            num_children += num_found
            num_fringe = push_children(
                found, num_found, total, node, survival, at.SEALED, odds, min_survival, fringe,
                fringe_survival, num_fringe,
            )  # fmt: skip
        if num_fringe == 0:
            break
        survival = take_top(fringe, fringe_survival, num_fringe, node)
        num_fringe -= 1
        num_nodes = note_node(node, survival, num_nodes, trial, trial_survival)
    return num_nodes


@jit
def match_rows(
    text: Array, order: Array, fences: Array, grams: Array, ends: Array, states: Array,
    is_masked: bool, homes: Array, rows: Array, tails: Array, spots: Array, winners: Array,
    first: Int, end: Int, rank: Int, home: Int,
) -> None:  # fmt: skip
    """See `longest.Source.match`; home: the stamp, or 0 for rows of any home. `spots` of a row says
    where the match is."""
    found = np.empty(at.MAX_SPOTS, np.int64)
    for number in range(first, end):
        winner = winners[number]
        is_elsewhere = home != 0 and homes[rows[number, at.READER]] != home
        if is_elsewhere or winner[at.WINNER] == rank:
            continue
        floor = floor_of(winner, rank)
        limit = min(rows[number, at.TOTAL], at.MAX_MATCH_TOKENS)
        if floor >= limit or longest_possible(grams, tails[number], floor) <= floor:
            continue
        length, num_spots = _match(
            text, order, fences, ends, states, is_masked, tails[number], limit, floor, found
        )
        if num_spots == 0:
            continue
        winner[at.WINNER] = rank
        winner[at.WINNER_LENGTH] = length
        winner[at.WINNER_STATE] = num_spots
        for spot in range(num_spots):
            spots[number, spot] = found[spot]


@jit
def draft_rows(
    text: Array, rows: Array, odds: Array, nodes: Array, survival: Array, firsts: Array,
    spots: Array, summaries: Array, winners: Array, first: Int, end: Int, rank: Int,
    min_survival: Float,
) -> None:  # fmt: skip
    """Drafts for the rows that the segment has won, and keeps what promises more."""
    room = scratch()
    owners = np.empty(at.MAX_SPOTS, np.int64)
    for number in range(first, end):
        if winners[number, at.WINNER] != rank:
            continue
        num_spots, length = winners[number, at.WINNER_STATE], winners[number, at.WINNER_LENGTH]
        for spot in range(num_spots):
            owners[spot] = 0
        begin_root(room[0], 0, length)
        num_nodes = _grow(
            text, spots[number], owners, num_spots, rows[number], odds, min_survival, room
        )
        if num_nodes > 0:
            keep_better(
                at.SEALED, length, num_nodes, room[4], room[5], nodes[number], survival[number],
                firsts[number], summaries[number],
            )  # fmt: skip
