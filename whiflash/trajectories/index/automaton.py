"""A suffix automaton over token ids, with counts and latest positions, grown token by token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.index import kernels, layout, search
from whiflash.trajectories.index.edges import find_child, place_edges
from whiflash.trajectories.index.lookup import LookupBatch, Odds

Ids = npt.NDArray[np.int32]
Table = npt.NDArray[np.int32]

MIN_CAPACITY_TOKENS = 64
# Measured on agent text: 1.4 to 1.55 states and 0.23 edges beside the first child per token.
STATES_PER_TOKEN = 1.6
EDGES_PER_TOKEN = 0.4
GROWTH = 1.5
MAX_SLOT_LOAD = 0.75


def _enlarged(table: Table, rows: int) -> Table:
    larger = np.zeros((rows, *table.shape[1:]), np.int32)
    larger[: len(table)] = table[:rows]
    return larger


class Automaton:
    """The substrings of several runs; no match reaches across the end of a run.

    Not thread-safe: one writer, and readers only while it does not write. `room_made` is the
    exception: it only reads, so that growing (milliseconds) needs no lock.
    Memory: about 66 bytes a token when trimmed, up to half as much again while it grows.
    """

    def __init__(self, capacity_tokens: int = MIN_CAPACITY_TOKENS) -> None:
        capacity = max(capacity_tokens, MIN_CAPACITY_TOKENS)
        num_edges = int(capacity * EDGES_PER_TOKEN)
        self.states = np.zeros(
            (int(capacity * STATES_PER_TOKEN), layout.NUM_STATE_COLUMNS), np.int32
        )
        self.edges = np.zeros((num_edges, layout.NUM_EDGE_COLUMNS), np.int32)
        self.slots = np.zeros(_num_slots(num_edges), np.int32)
        self.text = np.zeros(capacity, np.int32)
        self.head = np.zeros(layout.NUM_HEAD_FIELDS, np.int64)
        self.states[layout.ROOT, layout.LINK] = -1
        self.head[layout.NUM_STATES] = 1
        self.head[layout.NUM_EDGES] = 1
        # Position 0 stays free, so that LATEST == 0 can say "none".
        self.head[layout.NUM_TOKENS] = 1

    def __len__(self) -> int:
        """Tokens."""
        return int(self.head[layout.NUM_TOKENS]) - 1

    @property
    def num_links(self) -> int:
        """Suffix links walked to keep counts, in all."""
        return int(self.head[layout.NUM_LINKS])

    @property
    def num_bytes(self) -> int:
        arrays = (self.states, self.edges, self.slots, self.text)
        return sum(array.nbytes for array in arrays)

    def append(self, tokens: Ids) -> int:
        """Appends to the current run as far as there is room; how many."""
        tokens = _writable(tokens)
        return int(
            kernels.append(self.states, self.edges, self.slots, self.text, self.head, tokens)
        )

    def extend(self, tokens: Ids) -> None:
        """Appends all of `tokens` to the current run, growing as needed."""
        done = self.append(tokens)
        while done < len(tokens):
            self.take_room(self.room_made(len(tokens) - done))
            done += self.append(tokens[done:])

    def begin_row(
        self, batch: LookupBatch, number: int, context: Ids, absorbed: int, odds: Odds,
        min_survival: float,
    ) -> bool:  # fmt: skip
        """For an automaton over one growing context: takes in context[absorbed:], drafts from it
        and notes it as row `number`. False, and nothing changed, if the context is not a longer
        one of the same."""
        context = _writable(context)
        while True:
            absorbed = search.begin_row(
                self.states, self.edges, self.slots, self.text, self.head, context, absorbed,
                number, batch.rows, batch.tails, odds, batch.nodes, batch.survival, batch.firsts,
                batch.summaries, min_survival,
            )  # fmt: skip
            if absorbed < 0 or absorbed == len(context):
                return absorbed >= 0
            self.take_room(self.room_made(len(context) - absorbed))

    def lookup(
        self, batch: LookupBatch, matches: npt.NDArray[np.int64], first: int, end: int,
        source: int, odds: Odds, min_survival: float,
    ) -> None:  # fmt: skip
        """Improves the drafts of rows [first, end) of `batch`; see `search.lookup`."""
        search.lookup(
            self.states, self.edges, self.slots, self.text, self.head, matches, batch.rows,
            batch.tails, odds, batch.nodes, batch.survival, batch.firsts, batch.summaries, first,
            end, source, min_survival,
        )  # fmt: skip

    def end_run(self) -> None:
        """The next token begins another run."""
        kernels.end_run(self.states, self.head)

    def room_made(self, num_tokens: int) -> tuple[Table, Table, Table, Table]:
        """Copies of the tables, each with room for at least `num_tokens` more and at least half
        as large again where it is short, for `take_room`."""
        used_states = int(self.head[layout.NUM_STATES])
        used_edges = int(self.head[layout.NUM_EDGES])
        states = _room(len(self.states), used_states + 2 * num_tokens + 2)
        edges = _room(len(self.edges), used_edges + num_tokens)
        text = _room(len(self.text), len(self) + 1 + num_tokens)
        if (states, edges, text) == (len(self.states), len(self.edges), len(self.text)):
            edges = int(edges * GROWTH)  # one token wants more edges than usual
        return self._copied(states, edges, text)

    def take_room(self, tables: tuple[Table, Table, Table, Table]) -> None:
        """Swaps the tables in; nothing may have been appended since they were copied."""
        self.states, self.edges, self.slots, self.text = tables

    def trimmed(self) -> tuple[Table, Table, Table, Table]:
        """Copies of the tables without spare room, for `take_room`."""
        return self._copied(
            int(self.head[layout.NUM_STATES]), int(self.head[layout.NUM_EDGES]), len(self) + 1
        )

    def _copied(self, states: int, edges: int, text: int) -> tuple[Table, Table, Table, Table]:
        new_edges = _enlarged(self.edges, edges)
        slots = self.slots
        if _num_slots(edges) != len(slots):
            slots = np.zeros(_num_slots(edges), np.int32)
            place_edges(new_edges, slots, int(self.head[layout.NUM_EDGES]))
        return _enlarged(self.states, states), new_edges, slots, _enlarged(self.text, text)

    def state_of(self, tokens: Ids) -> int:
        """The state of a substring, or 0 if it does not occur (or is empty)."""
        state = layout.ROOT
        for token in tokens:
            state = int(find_child(self.states, self.edges, self.slots, state, int(token)))
            if state == 0:
                return 0
        return state

    def count(self, tokens: Ids) -> int:
        """Occurrences of a substring; the current run's last token is not counted yet. Exact
        while no walk was capped."""
        state = self.state_of(tokens)
        return int(self.states[state, layout.COUNT]) if state else 0

    def latest(self, tokens: Ids) -> int:
        """Position (from 0, over all runs) of the last token of the latest occurrence that was
        not the end of its run; -1 for none. Exact while no walk was capped."""
        state = self.state_of(tokens)
        return max(int(self.states[state, layout.LATEST]) - 2, -1)

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        num_states, num_edges = int(self.head[layout.NUM_STATES]), int(self.head[layout.NUM_EDGES])
        assert 1 <= num_states <= len(self.states), (num_states, len(self.states))
        assert 1 <= num_edges <= len(self.edges), (num_edges, len(self.edges))
        assert len(self) + 1 <= len(self.text), (len(self), len(self.text))
        assert num_states <= max(2 * len(self), 2), "more states than a suffix automaton can have"
        used = self.states[1:num_states]
        links, lengths = used[:, layout.LINK], used[:, layout.LENGTH]
        assert (links >= 0).all(), "only the root has no suffix link"
        assert (self.states[links, layout.LENGTH] < lengths).all(), "a link must be shorter"
        assert (used[:, layout.LATEST] <= len(self)).all(), "a position beyond the text"
        assert (used[:, layout.TARGET] < num_states).all(), "an edge to nowhere"
        self._check_edges(num_states, num_edges)

    def _check_edges(self, num_states: int, num_edges: int) -> None:
        edges = self.edges[1:num_edges]
        targets = edges[:, layout.EDGE_TARGET]
        assert ((targets > 0) & (targets < num_states)).all(), "an edge to nowhere"
        placed = np.sort(self.slots[self.slots > 0])
        assert np.array_equal(placed, np.arange(1, num_edges)), "slots and edges disagree"
        owners, tokens = edges[:, layout.EDGE_STATE], edges[:, layout.EDGE_TOKEN]
        keys = owners.astype(np.int64) << 32 | tokens.astype(np.int64) & 0xFFFFFFFF
        assert len(np.unique(keys)) == len(keys), "two edges of one state with one token"


def _writable(ids: Ids) -> Ids:
    """A copy of read-only ids: numba would compile every kernel a second time for them."""
    return ids if ids.flags.writeable else ids.copy()


def no_matches(num_readers: int) -> npt.NDArray[np.int64]:
    """int64 [readers, NUM_MATCH_COLUMNS]: a table of matches that says "not read yet"."""
    matches = np.zeros((num_readers, layout.NUM_MATCH_COLUMNS), np.int64)
    matches[:, layout.SEEN_VERSION] = -1
    return matches


def warm_up() -> None:
    """Compiles the kernels, or loads them from numba's cache (seconds the first time)."""
    automaton = Automaton()
    automaton.extend(np.zeros(1, np.int32))
    automaton.end_run()
    automaton.take_room(automaton.room_made(10 * MIN_CAPACITY_TOKENS))
    automaton.state_of(np.zeros(1, np.int32))
    odds = np.ones(layout.NUM_CELLS, np.float32)
    batch = LookupBatch()
    batch.begin([(0, 0, 0, 1, 1)])
    automaton.lookup(batch, no_matches(1), 0, 1, layout.PREDICTION, odds, 0.0)
    Automaton().begin_row(batch, 0, np.zeros(1, np.int32), 0, odds, 0.0)


def _num_slots(num_edges: int) -> int:
    return 1 << max(int(num_edges / MAX_SLOT_LOAD), 1).bit_length()


def _room(capacity: int, needed: int) -> int:
    return capacity if needed <= capacity else max(needed, int(capacity * GROWTH))
