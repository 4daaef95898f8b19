"""The numba kernels of the suffix automaton: appending, counting, matching.

Layout. A state stands for a set of substrings that end at the same places (Blumer et al. 1985).
`states` is int32 [capacity, 8], a row being half a cache line; `edges` and `slots` are those of
`edges.py`. `text` is int32 [capacity], `head` int64 [NUM_HEAD_FIELDS]. State 0 is the root and
edge 0 is not used, so 0 says "none" for both.
"""

from __future__ import annotations

import numpy as np

from whiflash.trajectories.index import layout as at
from whiflash.trajectories.index.edges import add_child, find_child, redirect
from whiflash.trajectories.index.jit import Array, Int, jit


@jit
def _clone(
    states: Array, edges: Array, slots: Array, head: Array, parent: Int, token: Int, child: Int
) -> Int:
    """Splits off the shorter substrings of `child`, which from now on end at more places."""
    clone = np.int64(head[at.NUM_STATES])
    head[at.NUM_STATES] += 1
    states[clone, at.LENGTH] = states[parent, at.LENGTH] + 1
    states[clone, at.LINK] = states[child, at.LINK]
    states[clone, at.COUNT] = states[child, at.COUNT]
    states[clone, at.LATEST] = states[child, at.LATEST]
    states[clone, at.TOKEN] = states[child, at.TOKEN]
    states[clone, at.TARGET] = states[child, at.TARGET]
    edge = states[child, at.EXTRA]
    while edge != 0:
        copied, target = np.int64(edges[edge, at.EDGE_TOKEN]), np.int64(edges[edge, at.EDGE_TARGET])
        add_child(states, edges, slots, head, clone, copied, target)
        edge = edges[edge, at.NEXT_EDGE]
    states[child, at.LINK] = clone
    redirect(states, edges, slots, parent, token, child, clone)
    return np.int64(clone)


@jit
def _edges_needed(states: Array, edges: Array, slots: Array, last: Int, token: Int) -> Int:
    """An upper bound of the edges that appending `token` will make, before anything is changed:
    a single token may need thousands (the first "b" after twenty thousand "a")."""
    needed = 0
    state = last
    child = find_child(states, edges, slots, state, token)
    while child == 0 and states[state, at.LINK] >= 0:
        needed += 1
        state = np.int64(states[state, at.LINK])
        child = find_child(states, edges, slots, state, token)
    if child == 0:
        return needed + 1
    if states[child, at.LENGTH] != states[state, at.LENGTH] + 1:
        needed += 1  # the child may be one of the states above, and is split with its new edge
        edge = states[child, at.EXTRA]
        while edge != 0:
            needed += 1
            edge = edges[edge, at.NEXT_EDGE]
    return needed


@jit
def _extend(states: Array, edges: Array, slots: Array, head: Array, token: Int) -> None:
    last = head[at.LAST]
    child = find_child(states, edges, slots, last, token)
    if child != 0:  # an earlier run began the same way
        if states[child, at.LENGTH] != states[last, at.LENGTH] + 1:
            child = _clone(states, edges, slots, head, last, token, child)
        head[at.LAST] = child
        return
    new = head[at.NUM_STATES]
    head[at.NUM_STATES] += 1
    states[new, at.LENGTH] = states[last, at.LENGTH] + 1
    state = last
    while state >= 0 and child == 0:
        add_child(states, edges, slots, head, state, token, new)
        state = np.int64(states[state, at.LINK])
        if state >= 0:
            child = find_child(states, edges, slots, state, token)
    if child != 0 and states[child, at.LENGTH] != states[state, at.LENGTH] + 1:
        child = _clone(states, edges, slots, head, state, token, child)
    states[new, at.LINK] = child  # 0 is the root
    head[at.LAST] = new


@jit
def credit(states: Array, head: Array, following: Int) -> None:
    """Counts the run's last token as an occurrence of all its suffixes. `following` is the
    position of the token that came next, 0 at the end of a run. At most MAX_WALK_LINKS links:
    a looping model would make the walk quadratic (facts: retrieval, section 7)."""
    state = head[at.LAST]
    num_links = 0
    while state != at.ROOT and num_links < at.MAX_WALK_LINKS:
        states[state, at.COUNT] += 1
        if following != 0:
            states[state, at.LATEST] = following
        state = np.int64(states[state, at.LINK])
        num_links += 1
    head[at.NUM_LINKS] += num_links


@jit
def append(
    states: Array, edges: Array, slots: Array, text: Array, head: Array, tokens: Array
) -> Int:
    """Appends int32 tokens to the current run; how many fitted. Fewer than given: grow first."""
    head[at.VERSION] += 1
    for number in range(len(tokens)):
        token = np.int64(tokens[number])
        needed = _edges_needed(states, edges, slots, head[at.LAST], token)
        position = head[at.NUM_TOKENS]
        if (
            head[at.NUM_EDGES] + needed > len(edges)
            or head[at.NUM_STATES] + 2 > len(states)
            or position >= len(text)
        ):
            return number
        credit(states, head, position)
        _extend(states, edges, slots, head, token)
        text[position] = token
        head[at.NUM_TOKENS] = position + 1
    return len(tokens)


@jit
def absorb(
    states: Array, edges: Array, slots: Array, text: Array, head: Array, context: Array,
    absorbed: Int,
) -> Int:  # fmt: skip
    """Appends context[absorbed:] to an automaton over the context so far; the ids absorbed then,
    fewer than there are if there was no room, -1 if the context is not a longer one of the same
    (seen by its last MAX_MATCH_TOKENS absorbed ids; a draft from another text is only a worse
    guess)."""
    num_held = head[at.NUM_TOKENS] - 1
    if absorbed > len(context):
        return -1
    for back in range(1, min(num_held, absorbed, at.MAX_MATCH_TOKENS) + 1):
        if text[num_held + 1 - back] != context[absorbed - back]:
            return -1
    return absorbed + append(states, edges, slots, text, head, context[absorbed:])


@jit
def end_run(states: Array, head: Array) -> None:
    """The next token begins a run: no match will reach across."""
    head[at.VERSION] += 1
    credit(states, head, 0)
    head[at.LAST] = at.ROOT


@jit
def match_from(
    states: Array, edges: Array, slots: Array, state: Int, length: Int, tokens: Array
) -> tuple[Int, Int]:
    """Advances a match (state, length in tokens) by `tokens`: the longest suffix of all read so
    far that occurs, of at most MAX_MATCH_TOKENS."""
    for number in range(len(tokens)):
        token = np.int64(tokens[number])
        child = find_child(states, edges, slots, state, token)
        while child == 0 and state != at.ROOT:
            state = np.int64(states[state, at.LINK])
            length = np.int64(states[state, at.LENGTH])
            child = find_child(states, edges, slots, state, token)
        if child == 0:
            continue
        state = child
        length = min(length + 1, at.MAX_MATCH_TOKENS)
        while length <= states[states[state, at.LINK], at.LENGTH]:
            state = np.int64(states[state, at.LINK])
    return state, length
