"""The numba kernels of an automaton's edges: finding, adding and redirecting a state's children.

A state's first child lies in its row of `states`, further ones in `edges`, int32 [capacity, 4],
found by open addressing over `slots` (number of an edge, 0 for free) and chained in order of their
making.
"""

from __future__ import annotations

import numpy as np

from whiflash.trajectories.index import layout as at
from whiflash.trajectories.index.jit import Array, Int, jit


@jit
def _slot_of(slots: Array, state: Int, token: Int) -> Int:
    mixed = (np.uint64(state) << np.uint64(32)) | np.uint64(np.uint32(token))
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(len(slots) - 1))


@jit
def _find_edge(edges: Array, slots: Array, state: Int, token: Int) -> Int:
    place = _slot_of(slots, state, token)
    while slots[place] != 0:
        edge = slots[place]
        if edges[edge, at.EDGE_STATE] == state and edges[edge, at.EDGE_TOKEN] == token:
            return np.int64(edge)
        place = (place + 1) & (len(slots) - 1)
    return np.int64(0)


@jit
def find_child(states: Array, edges: Array, slots: Array, state: Int, token: Int) -> Int:
    """The state behind `token`, or 0."""
    if states[state, at.TARGET] == 0:
        return np.int64(0)
    if states[state, at.TOKEN] == token:
        return np.int64(states[state, at.TARGET])
    if states[state, at.EXTRA] == 0:
        return np.int64(0)
    return np.int64(edges[_find_edge(edges, slots, state, token), at.EDGE_TARGET])


@jit
def place_edge(edges: Array, slots: Array, edge: Int) -> None:
    """Makes an edge findable."""
    state, token = np.int64(edges[edge, at.EDGE_STATE]), np.int64(edges[edge, at.EDGE_TOKEN])
    place = _slot_of(slots, state, token)
    while slots[place] != 0:
        place = (place + 1) & (len(slots) - 1)
    slots[place] = edge


@jit
def place_edges(edges: Array, slots: Array, num_edges: Int) -> None:
    """Fills an empty, larger slot table."""
    for edge in range(1, num_edges):
        place_edge(edges, slots, edge)


@jit
def add_child(
    states: Array, edges: Array, slots: Array, head: Array, state: Int, token: Int, target: Int
) -> None:
    if states[state, at.TARGET] == 0:
        states[state, at.TOKEN] = token
        states[state, at.TARGET] = target
        return
    edge = head[at.NUM_EDGES]
    head[at.NUM_EDGES] += 1
    edges[edge, at.EDGE_STATE] = state
    edges[edge, at.EDGE_TOKEN] = token
    edges[edge, at.EDGE_TARGET] = target
    edges[edge, at.NEXT_EDGE] = 0
    if states[state, at.EXTRA] == 0:
        states[state, at.EXTRA] = edge
    else:
        edges[states[state, at.LAST_EXTRA], at.NEXT_EDGE] = edge
    states[state, at.LAST_EXTRA] = edge
    place_edge(edges, slots, edge)


@jit
def redirect(
    states: Array, edges: Array, slots: Array, state: Int, token: Int, old: Int, new: Int
) -> None:
    """Every suffix of `state` that reaches `old` by `token` reaches `new` instead."""
    while state >= 0 and find_child(states, edges, slots, state, token) == old:
        if states[state, at.TOKEN] == token:
            states[state, at.TARGET] = new
        else:
            edges[_find_edge(edges, slots, state, token), at.EDGE_TARGET] = new
        state = np.int64(states[state, at.LINK])
