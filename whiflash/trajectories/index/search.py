"""The numba kernels of a lookup in an automaton: following a context, drafting from a match."""

from __future__ import annotations

import numpy as np

from whiflash.trajectories.index import layout as at
from whiflash.trajectories.index.edges import find_child
from whiflash.trajectories.index.fringe import (
    begin_root,
    keep_better,
    note_node,
    push_children,
    scratch,
    take_top,
)
from whiflash.trajectories.index.jit import Array, Float, Int, jit
from whiflash.trajectories.index.kernels import absorb, match_from


@jit
def is_followed(match: Array, head: Array, row: Array) -> bool:
    """Whether a reader's match is one of this automaton as it is, for the start of the context."""
    is_same = match[at.SEEN_VERSION] == head[at.VERSION] and match[at.SEEN_FORKS] == row[at.FORKS]
    return bool(is_same and match[at.ABSORBED] <= row[at.TOTAL])


@jit
def note_match(match: Array, state: Int, length: Int, head: Array, row: Array) -> None:
    """A reader's match, for its whole context."""
    match[at.MATCH_STATE] = state
    match[at.MATCH_LENGTH] = length
    match[at.ABSORBED] = row[at.TOTAL]
    match[at.SEEN_VERSION] = head[at.VERSION]
    match[at.SEEN_FORKS] = row[at.FORKS]


@jit
def to_continued(states: Array, state: Int, length: Int) -> tuple[Int, Int]:
    """The longest suffix of a match that is not only ever seen at the end of a run."""
    while state > 0 and states[state, at.TARGET] == 0:
        state = np.int64(states[state, at.LINK])
        length = np.int64(states[state, at.LENGTH])
    return state, length


@jit
def _follow(
    states: Array, edges: Array, slots: Array, head: Array, match: Array, row: Array, tail: Array
) -> None:
    """Brings a reader's match up to its context: by the new tokens if the automaton has not
    changed since, else from the tail."""
    behind = row[at.TOTAL] - match[at.ABSORBED]
    state, length = match[at.MATCH_STATE], match[at.MATCH_LENGTH]
    if not is_followed(match, head, row) or behind > len(tail):
        state, length = np.int64(at.ROOT), np.int64(0)
        behind = min(row[at.TOTAL], len(tail))
    state, length = match_from(states, edges, slots, state, length, tail[len(tail) - behind :])
    note_match(match, state, length, head, row)


@jit
def _note_child(
    states: Array, found: Array, number: Int, token: Int, child: Int, is_latest: bool
) -> None:
    found[number, at.CHILD_TOKEN] = token
    found[number, at.CHILD] = child
    found[number, at.IS_LATEST] = is_latest
    found[number, at.CHILD_COUNT] = max(states[child, at.COUNT], 1)


@jit
def _children(
    states: Array, edges: Array, slots: Array, text: Array, state: Int, found: Array
) -> Int:
    """Fills `found` with the first MAX_SCANNED children and the latest one; how many."""
    latest = np.int64(-1)
    if states[state, at.LATEST] != 0:
        latest = np.int64(text[states[state, at.LATEST]])
    token, child = np.int64(states[state, at.TOKEN]), np.int64(states[state, at.TARGET])
    _note_child(states, found, 0, token, child, token == latest)
    has_latest = token == latest or latest < 0
    num_found = 1
    edge = states[state, at.EXTRA]
    while edge != 0 and num_found < at.MAX_SCANNED:
        token, child = np.int64(edges[edge, at.EDGE_TOKEN]), np.int64(edges[edge, at.EDGE_TARGET])
        _note_child(states, found, num_found, token, child, token == latest)
        has_latest = has_latest or token == latest
        num_found += 1
        edge = edges[edge, at.NEXT_EDGE]
    if not has_latest:
        child = find_child(states, edges, slots, state, latest)
        _note_child(states, found, num_found, latest, child, True)
        num_found += 1
    return num_found


@jit
def grow(
    states: Array, edges: Array, slots: Array, text: Array, source: Int, node: Array,
    row: Array, odds: Array, min_survival: Float, found: Array, fringe: Array,
    fringe_survival: Array, nodes: Array, node_survival: Array,
) -> Int:  # fmt: skip
    """Best-first: the node of greatest survival is taken, its children join the fringe. So the
    tree has the greatest expected accepted tokens of all trees of its size. Number of nodes."""
    num_nodes = 0
    num_fringe = np.int64(0)
    survival = 1.0
    max_nodes = min(row[at.NODES_LIMIT], at.MAX_NODES)
    while num_nodes < max_nodes:
        if (
            node[at.NODE_DEPTH] < row[at.DEPTH_LIMIT]
            and states[node[at.NODE_STATE], at.TARGET] != 0
        ):
            num_found = _children(states, edges, slots, text, node[at.NODE_STATE], found)
            total = max(states[node[at.NODE_STATE], at.COUNT], 1)
            num_fringe = push_children(
                found, num_found, total, node, survival, source, odds, min_survival, fringe,
                fringe_survival, num_fringe,
            )  # fmt: skip
        if num_fringe == 0:
            break
        survival = take_top(fringe, fringe_survival, num_fringe, node)
        num_fringe -= 1
        num_nodes = note_node(node, survival, num_nodes, nodes, node_survival)
    return num_nodes


@jit
def _draft(
    states: Array, edges: Array, slots: Array, text: Array, state: Int, length: Int, source: Int,
    row: Array, odds: Array, min_survival: Float, room: Array, nodes: Array,
    node_survival: Array, firsts: Array, summary: Array,
) -> None:  # fmt: skip
    """Grows a tree from a match and keeps it if it is the row's best so far."""
    state, length = to_continued(states, state, length)
    if state <= 0:
        return
    node, found, fringe, fringe_survival, trial, trial_survival = room
    begin_root(node, state, length)
    num_nodes = grow(states, edges, slots, text, source, node, row, odds, min_survival,
                     found, fringe, fringe_survival, trial, trial_survival)  # fmt: skip
    if num_nodes > 0:
        keep_better(source, length, num_nodes, trial, trial_survival, nodes, node_survival,
                     firsts, summary)  # fmt: skip


@jit
def lookup(
    states: Array, edges: Array, slots: Array, text: Array, head: Array, matches: Array,
    rows: Array, tails: Array, odds: Array, nodes: Array, survival: Array, firsts: Array,
    summaries: Array, first: Int, end: Int, source: Int, min_survival: Float,
) -> None:  # fmt: skip
    """Drafts for rows [first, end) from one automaton over other texts, keeping per row the draft
    of the greatest expected accepted tokens among those of earlier calls and this one.

    matches: int64 [1, NUM_MATCH_COLUMNS]; odds: float32 [NUM_CELLS]; the others are those
    of `lookup.LookupBatch`."""
    room = scratch()
    for number in range(first, end):
        row = rows[number]
        match = matches[0]
        _follow(states, edges, slots, head, match, row, tails[number])
        _draft(states, edges, slots, text, match[at.MATCH_STATE], match[at.MATCH_LENGTH], source,
               row, odds, min_survival, room, nodes[number], survival[number],
               firsts[number], summaries[number])  # fmt: skip


@jit
def begin_row(
    states: Array, edges: Array, slots: Array, text: Array, head: Array, context: Array,
    absorbed: Int, number: Int, rows: Array, tails: Array, odds: Array, nodes: Array,
    survival: Array, firsts: Array, summaries: Array, min_survival: Float,
) -> Int:  # fmt: skip
    """Absorbs what is new of a row's context, drafts from the context itself (the match is its
    longest suffix that it holds twice), and notes its length and tail for the other sources.
    Returns what `kernels.absorb` returns; unless that is all of the context, nothing else is
    done."""
    done = absorb(states, edges, slots, text, head, context, absorbed)
    if done != len(context):
        return done
    rows[number, at.TOTAL] = done
    known = min(done, at.MAX_MATCH_TOKENS)
    for back in range(1, known + 1):
        tails[number, at.MAX_MATCH_TOKENS - back] = context[done - back]
    state = np.int64(states[head[at.LAST], at.LINK])
    if state > 0:
        _draft(states, edges, slots, text, state, np.int64(states[state, at.LENGTH]), at.CONTEXT,
               rows[number], odds, min_survival, scratch(), nodes[number], survival[number],
               firsts[number], summaries[number])  # fmt: skip
    return done
