"""The numba kernels of a lookup: following a context, growing a draft tree from a match."""

from __future__ import annotations

import numpy as np

from whiflash.trajectories.index import layout as at
from whiflash.trajectories.index.jit import Array, Float, Int, jit
from whiflash.trajectories.index.kernels import absorb, find_child, match_from


@jit
def cell_of(source: Int, length: Int, count: Int, total: Int, is_latest: bool) -> Int:
    """Number of the learned probability that a node falls under: its source, the tokens matched
    before it, its share of the continuations (a certain one by whether it was seen more than
    once), and whether it is the most recent continuation."""
    share = at.NUM_EDGE_BUCKETS - (1 if count > 1 else 2)
    if count < total:
        share = 0
        while share < len(at.EDGE_SHARES) and count >= at.EDGE_SHARES[share] * total:
            share += 1
    bucket = (
        source * at.NUM_LENGTH_BUCKETS + at.LENGTH_BUCKETS[min(length, at.MAX_MATCH_TOKENS + 1)]
    )
    return (bucket * at.NUM_EDGE_BUCKETS + share) * 2 + (1 if is_latest else 0)


@jit
def _follow(
    states: Array, edges: Array, slots: Array, head: Array, match: Array, row: Array, tail: Array
) -> None:
    """Brings a reader's match up to its context: by the new tokens if the automaton has not
    changed since, else from the tail."""
    behind = row[at.TOTAL] - match[at.ABSORBED]
    is_stale = match[at.SEEN_VERSION] != head[at.VERSION] or row[at.IS_FORKED] != 0
    if is_stale or behind < 0 or behind > len(tail):
        match[at.MATCH_STATE] = at.ROOT
        match[at.MATCH_LENGTH] = 0
        behind = min(row[at.TOTAL], len(tail))
    state, length = match_from(
        states,
        edges,
        slots,
        match[at.MATCH_STATE],
        match[at.MATCH_LENGTH],
        tail[len(tail) - behind :],
    )
    match[at.MATCH_STATE] = state
    match[at.MATCH_LENGTH] = length
    match[at.ABSORBED] = row[at.TOTAL]
    match[at.SEEN_VERSION] = head[at.VERSION]


@jit
def _children(
    states: Array, edges: Array, slots: Array, text: Array, state: Int, found: Array
) -> Int:
    """Fills `found` with (token, state) of the first MAX_SCANNED children and the latest one,
    which is marked; how many. Column 2 says whether it is the latest."""
    latest = np.int64(-1)
    if states[state, at.LATEST] != 0:
        latest = np.int64(text[states[state, at.LATEST]])
    found[0, 0] = states[state, at.TOKEN]
    found[0, 1] = states[state, at.TARGET]
    found[0, 2] = states[state, at.TOKEN] == latest
    has_latest = states[state, at.TOKEN] == latest or latest < 0
    num_found = 1
    edge = states[state, at.EXTRA]
    while edge != 0 and num_found < at.MAX_SCANNED:
        is_latest = edges[edge, at.EDGE_TOKEN] == latest
        found[num_found, 0] = edges[edge, at.EDGE_TOKEN]
        found[num_found, 1] = edges[edge, at.EDGE_TARGET]
        found[num_found, 2] = is_latest
        has_latest = has_latest or is_latest
        num_found += 1
        edge = edges[edge, at.NEXT_EDGE]
    if not has_latest:
        found[num_found, 0] = latest
        found[num_found, 1] = find_child(states, edges, slots, state, latest)
        found[num_found, 2] = 1
        num_found += 1
    return num_found


@jit
def _push_children(
    states: Array, found: Array, num_found: Int, node: Array, survival: Float, source: Int,
    odds: Array, min_survival: Float, fringe: Array, fringe_survival: Array, num_fringe: Int,
) -> Int:  # fmt: skip
    """The MAX_CHILDREN likeliest children of `node` join the fringe; its new size."""
    total = max(states[node[at.NODE_STATE], at.COUNT], 1)
    for rank in range(at.MAX_CHILDREN):
        best, best_cell, best_odds = -1, 0, 0.0
        for number in range(num_found):
            if found[number, 1] == 0:
                continue  # taken by an earlier rank
            count = max(states[found[number, 1], at.COUNT], 1)
            cell = cell_of(source, node[at.NODE_LENGTH], count, total, found[number, 2] != 0)
            if odds[cell] > best_odds or (odds[cell] == best_odds and found[number, 2] != 0):
                best, best_cell, best_odds = number, cell, odds[cell]
        is_first = node[at.NODE_ROW] == 0 and rank == 0
        if best < 0 or not (is_first or survival * best_odds >= min_survival):
            break
        fringe[num_fringe, at.NODE_STATE] = found[best, 1]
        fringe[num_fringe, at.NODE_LENGTH] = node[at.NODE_LENGTH] + 1
        fringe[num_fringe, at.NODE_ROW] = node[at.NODE_ROW]
        fringe[num_fringe, at.NODE_DEPTH] = node[at.NODE_DEPTH] + 1
        fringe[num_fringe, at.NODE_TOKEN] = found[best, 0]
        fringe[num_fringe, at.NODE_CELL] = best_cell
        fringe_survival[num_fringe] = survival * best_odds
        num_fringe += 1
        found[best, 1] = 0
    return num_fringe


@jit
def _take_top(fringe: Array, fringe_survival: Array, num_fringe: Int, node: Array) -> Float:
    """Moves the likeliest node of the fringe to `node`; its survival. Loops, not slices: numba
    compiles a slice assignment for seconds."""
    top = 0
    for number in range(1, num_fringe):
        if fringe_survival[number] > fringe_survival[top]:
            top = number
    survival = fringe_survival[top]
    for column in range(at.NUM_NODE_FIELDS):
        node[column] = fringe[top, column]
        fringe[top, column] = fringe[num_fringe - 1, column]
    fringe_survival[top] = fringe_survival[num_fringe - 1]
    return survival


@jit
def _grow(
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
            num_fringe = _push_children(
                states, found, num_found, node, survival, source, odds, min_survival, fringe,
                fringe_survival, num_fringe,
            )  # fmt: skip
        if num_fringe == 0:
            break
        survival = _take_top(fringe, fringe_survival, num_fringe, node)
        num_fringe -= 1
        nodes[at.DRAFT_TOKEN, num_nodes] = node[at.NODE_TOKEN]
        nodes[at.PARENT, num_nodes] = node[at.NODE_ROW]
        nodes[at.DEPTH, num_nodes] = node[at.NODE_DEPTH]
        nodes[at.CELL, num_nodes] = node[at.NODE_CELL]
        node_survival[num_nodes] = survival
        num_nodes += 1
        node[at.NODE_ROW] = num_nodes
    return num_nodes


@jit
def _keep_better(
    source: Int, length: Int, num_nodes: Int, trial: Array, trial_survival: Array,
    nodes: Array, node_survival: Array, firsts: Array, summary: Array,
) -> None:  # fmt: skip
    expected = 0.0
    for node in range(num_nodes):
        expected += trial_survival[node]
    if trial_survival[0] > summary[at.FIRST_SURVIVAL + source]:
        summary[at.FIRST_SURVIVAL + source] = trial_survival[0]
        firsts[source, at.FIRST_TOKEN] = trial[at.DRAFT_TOKEN, 0]
        firsts[source, at.FIRST_CELL] = trial[at.CELL, 0]
    if expected > summary[at.EXPECTED]:
        summary[at.EXPECTED] = expected
        summary[at.NUM_DRAFTED] = num_nodes
        summary[at.MATCHED] = length
        summary[at.SOURCE] = source
        for node in range(num_nodes):
            node_survival[node] = trial_survival[node]
            for column in range(at.NUM_NODE_ROWS):
                nodes[column, node] = trial[column, node]


@jit
def _scratch() -> tuple[Array, Array, Array, Array, Array, Array]:
    fringe = np.empty((at.MAX_CHILDREN * (at.MAX_NODES + 1), at.NUM_NODE_FIELDS), np.int64)
    fringe_survival = np.empty(len(fringe), np.float64)
    found = np.empty((at.MAX_SCANNED + 1, 3), np.int64)
    trial = np.empty((at.NUM_NODE_ROWS, at.MAX_NODES), np.int32)
    trial_survival = np.empty(at.MAX_NODES, np.float32)
    return (
        np.zeros(at.NUM_NODE_FIELDS, np.int64),
        found,
        fringe,
        fringe_survival,
        trial,
        trial_survival,
    )


@jit
def _draft(
    states: Array, edges: Array, slots: Array, text: Array, state: Int, length: Int, source: Int,
    row: Array, odds: Array, min_survival: Float, scratch: Array, nodes: Array,
    node_survival: Array, firsts: Array, summary: Array,
) -> None:  # fmt: skip
    """Grows a tree from a match and keeps it if it is the row's best so far."""
    while state > 0 and states[state, at.TARGET] == 0:  # only ever seen at the end of a run
        state = np.int64(states[state, at.LINK])
        length = np.int64(states[state, at.LENGTH])
    if state <= 0 or (source == at.LIVE and length <= summary[at.LIVE_LENGTH]):
        return  # a newer part of the live index has matched as much
    if source == at.LIVE:
        summary[at.LIVE_LENGTH] = length
    node, found, fringe, fringe_survival, trial, trial_survival = scratch
    node[at.NODE_STATE] = state
    node[at.NODE_LENGTH] = length
    node[at.NODE_ROW] = 0
    node[at.NODE_DEPTH] = 0
    num_nodes = _grow(states, edges, slots, text, source, node, row, odds, min_survival,
                      found, fringe, fringe_survival, trial, trial_survival)  # fmt: skip
    if num_nodes > 0:
        _keep_better(source, length, num_nodes, trial, trial_survival, nodes, node_survival,
                     firsts, summary)  # fmt: skip


@jit
def lookup(
    states: Array, edges: Array, slots: Array, text: Array, head: Array, matches: Array,
    rows: Array, tails: Array, odds: Array, nodes: Array, survival: Array, firsts: Array,
    summaries: Array, first: Int, end: Int, source: Int, min_survival: Float,
) -> None:  # fmt: skip
    """Drafts for rows [first, end) from one automaton over other texts, keeping per row the draft
    of the greatest expected accepted tokens among those of earlier calls and this one.

    matches: int64 [readers, NUM_MATCH_COLUMNS]; odds: float32 [NUM_CELLS]; the others are those
    of `lookup.LookupBatch`."""
    scratch = _scratch()
    for number in range(first, end):
        row = rows[number]
        match = matches[row[at.READER] if source == at.LIVE else 0]
        _follow(states, edges, slots, head, match, row, tails[number])
        _draft(states, edges, slots, text, match[at.MATCH_STATE], match[at.MATCH_LENGTH], source,
               row, odds, min_survival, scratch, nodes[number], survival[number],
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
               rows[number], odds, min_survival, _scratch(), nodes[number], survival[number],
               firsts[number], summaries[number])  # fmt: skip
    return done
