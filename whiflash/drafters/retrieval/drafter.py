"""The retrieval drafter: one lookup for all rows, no model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.rows import DraftRow, Feedback
from whiflash.drafters.retrieval.odds import LearnedOdds
from whiflash.drafters.retrieval.request import OpenRequest
from whiflash.drafters.retrieval.tree import RetrievedTree
from whiflash.trajectories.index import LookupBatch, TrajectoryIndexes, layout

Ids = npt.NDArray[np.int32]
NAME = "retrieval"
DEFAULT_WINDOW_TOKENS = 32_768
DEFAULT_MIN_SURVIVAL = 0.05
MAX_TABLES = 1024


class RetrievalDrafter:
    """Implements Drafter.

    Sources: the sequence's own context, its prediction, earlier runs of its namespace. In each the
    longest suffix of the context is matched, a tree is grown best-first by learned probabilities,
    and the source with the greatest expected accepted tokens drafts. A tree has at most
    `layout.MAX_NODES` nodes; nodes whose survival is under `min_survival` are left out, but for
    the likeliest first one, which costs nothing to propose and keeps the learning going.
    """

    def __init__(
        self,
        indexes: TrajectoryIndexes,
        window_tokens: int = DEFAULT_WINDOW_TOKENS,
        min_survival: float = DEFAULT_MIN_SURVIVAL,
    ) -> None:
        if window_tokens < layout.MAX_MATCH_TOKENS or not 0 <= min_survival < 1:
            raise ConfigError(
                f"retrieval needs window_tokens >= {layout.MAX_MATCH_TOKENS} and min_survival in "
                f"[0, 1), got {window_tokens} and {min_survival}"
            )
        self._indexes = indexes
        self._window_tokens = window_tokens
        self._min_survival = min_survival
        self._batch = LookupBatch()
        self._requests: dict[int, OpenRequest] = {}
        self._tables: OrderedDict[str, LearnedOdds] = OrderedDict()  # least recently used first

    @property
    def name(self) -> str:
        return NAME

    @property
    def is_free(self) -> bool:
        return True

    @property
    def num_bytes(self) -> int:
        """Memory of the open sequences; the live indexes count their own."""
        return sum(request.num_bytes for request in self._requests.values())

    def open(self, sequence_id: int, namespace: str, prompt_ids: Ids, prediction_ids: Ids) -> None:
        """Indexes prompt and prediction. Raises ValueError without a namespace."""
        self.close(sequence_id)
        live = self._indexes.live(namespace)
        self._requests[sequence_id] = OpenRequest(
            live, prompt_ids, prediction_ids, self._window_tokens
        )

    def close(self, sequence_id: int) -> None:
        request = self._requests.pop(sequence_id, None)
        if request is not None:
            request.close()

    def matched(self, sequence_id: int) -> int:
        request = self._requests.get(sequence_id)
        return 0 if request is None else request.matched

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        """Raises ValueError on a sequence that is not open, or open in another namespace."""
        order = sorted(range(len(rows)), key=lambda number: rows[number].namespace)
        requests = [self._request_of(rows[number]) for number in order]
        self._batch.begin(len(rows))
        for place, (number, request) in enumerate(zip(order, requests, strict=True)):
            self._look_at_own(place, rows[number], request)
        self._look_at_live([rows[number].namespace for number in order], requests)
        trees = [DraftTree.empty()] * len(rows)
        summaries = self._batch.summaries[: len(rows)].tolist()
        for place, (number, request) in enumerate(zip(order, requests, strict=True)):
            trees[number] = self._tree(place, summaries[place])
            request.matched = int(summaries[place][layout.MATCHED])
        return trees

    def _request_of(self, row: DraftRow) -> OpenRequest:
        request = self._requests.get(row.sequence_id)
        if request is None or request.live.namespace != row.namespace:
            raise ValueError(f"sequence {row.sequence_id} is not open in the row's namespace")
        return request

    def _look_at_own(self, place: int, row: DraftRow, request: OpenRequest) -> None:
        is_forked = not request.context.absorb(row.context)
        self._batch.ask(place, request.reader, row.context, is_forked, row.max_nodes, row.max_depth)
        odds = self._table(row.namespace).odds
        own = [(layout.CONTEXT, request.context), (layout.PREDICTION, request.prediction)]
        for source, index in own:
            if index is not None:
                index.automaton.lookup(
                    self._batch, index.matches, place, place + 1, source, odds, self._min_survival
                )

    def _look_at_live(self, namespaces: list[str], requests: list[OpenRequest]) -> None:
        first = 0
        for namespace, group in groupby(namespaces):
            end = first + len(list(group))
            odds = self._table(namespace).odds
            requests[first].live.lookup(self._batch, first, end, odds, self._min_survival)
            first = end

    def _tree(self, place: int, summary: list[float]) -> DraftTree:
        num_nodes = int(summary[layout.NUM_DRAFTED])
        if num_nodes == 0:
            return DraftTree.empty()
        source = int(summary[layout.SOURCE])
        tokens, parents, depths, cells = self._batch.nodes[place, :, :num_nodes].copy()
        probes = tuple(
            (int(summary[layout.FIRST_TOKEN + other]), int(summary[layout.FIRST_CELL + other]))
            for other in range(layout.NUM_SOURCES)
            if other != source and summary[layout.FIRST_SURVIVAL + other] > 0
        )
        survival = self._batch.survival[place, :num_nodes].copy()
        return RetrievedTree(
            tokens, parents, depths, survival, layout.SOURCE_NAMES[source], cells, probes
        )

    def learn(self, feedback: Sequence[Feedback]) -> None:
        """Outcomes of own trees, whether verified or shadow; others teach nothing here."""
        for entry in feedback:
            if isinstance(entry.tree, RetrievedTree):
                self._table(entry.row.namespace).learn(entry.tree.outcomes(entry.followed))

    def _table(self, namespace: str) -> LearnedOdds:
        table = self._tables.get(namespace)
        if table is None:
            table = self._tables[namespace] = LearnedOdds()
            if len(self._tables) > MAX_TABLES:
                self._tables.popitem(last=False)
        self._tables.move_to_end(namespace)
        return table

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        assert len(self._tables) <= MAX_TABLES
        for request in self._requests.values():
            request.check_integrity()
        for table in self._tables.values():
            table.check_integrity()
        readers = [(id(r.live), r.reader) for r in self._requests.values()]
        assert len(set(readers)) == len(readers), "two sequences share a reader"
