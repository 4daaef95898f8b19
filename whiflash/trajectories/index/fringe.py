"""The numba kernels of a draft that grows: its fringe, the odds of its nodes, the best so far."""

from __future__ import annotations

import numpy as np

from whiflash.trajectories.index import layout as at
from whiflash.trajectories.index.jit import Array, Float, Int, jit


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
def push_children(
    found: Array, num_found: Int, total: Int, node: Array, survival: Float, source: Int,
    odds: Array, min_survival: Float, fringe: Array, fringe_survival: Array, num_fringe: Int,
) -> Int:  # fmt: skip
    """The MAX_CHILDREN likeliest children of `node`, which occurs `total` times, join the fringe;
    its new size."""
    for rank in range(at.MAX_CHILDREN):
        best, best_cell, best_odds = -1, 0, 0.0
        for number in range(num_found):
            if found[number, at.CHILD] == 0:
                continue  # taken by an earlier rank
            is_latest = found[number, at.IS_LATEST] != 0
            cell = cell_of(
                source, node[at.NODE_LENGTH], found[number, at.CHILD_COUNT], total, is_latest
            )
            if odds[cell] > best_odds or (odds[cell] == best_odds and is_latest):
                best, best_cell, best_odds = number, cell, odds[cell]
        is_first = node[at.NODE_ROW] == 0 and rank == 0
        if best < 0 or not (is_first or survival * best_odds >= min_survival):
            break
        fringe[num_fringe, at.NODE_STATE] = found[best, at.CHILD]
        fringe[num_fringe, at.NODE_LENGTH] = node[at.NODE_LENGTH] + 1
        fringe[num_fringe, at.NODE_ROW] = node[at.NODE_ROW]
        fringe[num_fringe, at.NODE_DEPTH] = node[at.NODE_DEPTH] + 1
        fringe[num_fringe, at.NODE_TOKEN] = found[best, at.CHILD_TOKEN]
        fringe[num_fringe, at.NODE_CELL] = best_cell
        fringe_survival[num_fringe] = survival * best_odds
        num_fringe += 1
        found[best, at.CHILD] = 0
    return num_fringe


@jit
def take_top(fringe: Array, fringe_survival: Array, num_fringe: Int, node: Array) -> Float:
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
def note_node(
    node: Array, survival: Float, num_nodes: Int, nodes: Array, node_survival: Array
) -> Int:
    """`node` becomes one of the tree; how many it has then."""
    nodes[at.DRAFT_TOKEN, num_nodes] = node[at.NODE_TOKEN]
    nodes[at.PARENT, num_nodes] = node[at.NODE_ROW]
    nodes[at.DEPTH, num_nodes] = node[at.NODE_DEPTH]
    nodes[at.CELL, num_nodes] = node[at.NODE_CELL]
    node_survival[num_nodes] = survival
    node[at.NODE_ROW] = num_nodes + 1
    return num_nodes + 1


@jit
def begin_root(node: Array, state: Int, length: Int) -> None:
    """`node` becomes the root of a draft behind a match."""
    node[at.NODE_STATE] = state
    node[at.NODE_LENGTH] = length
    node[at.NODE_ROW] = 0
    node[at.NODE_DEPTH] = 0


@jit
def keep_better(
    source: Int, length: Int, num_nodes: Int, trial: Array, trial_survival: Array,
    nodes: Array, node_survival: Array, firsts: Array, summary: Array,
) -> None:  # fmt: skip
    """The trial becomes the row's draft if it promises more accepted tokens than the one so far."""
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
def scratch() -> tuple[Array, Array, Array, Array, Array, Array]:
    """node, found children, fringe, its survival, trial, its survival."""
    fringe = np.empty((at.MAX_CHILDREN * (at.MAX_NODES + 1), at.NUM_NODE_FIELDS), np.int64)
    fringe_survival = np.empty(len(fringe), np.float64)
    found = np.empty((at.MAX_SCANNED + 1, at.NUM_CHILD_COLUMNS), np.int64)
    trial = np.empty((at.NUM_NODE_ROWS, at.MAX_NODES), np.int32)
    trial_survival = np.empty(at.MAX_NODES, np.float32)
    node = np.zeros(at.NUM_NODE_FIELDS, np.int64)
    return node, found, fringe, fringe_survival, trial, trial_survival
