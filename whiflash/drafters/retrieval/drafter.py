"""The retrieval drafter: one lookup for all rows, no model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.params import ALONE
from whiflash.core.rows import DraftRow, Feedback
from whiflash.drafters.retrieval.odds import LearnedOdds, warm_up
from whiflash.drafters.retrieval.request import OpenRequest
from whiflash.drafters.retrieval.tree import RetrievedTree
from whiflash.trajectories.index import LookupBatch, TrajectoryIndexes, layout

Ids = npt.NDArray[np.int32]
NAME = "retrieval"
DEFAULT_WINDOW_TOKENS = 32_768
DEFAULT_MIN_SURVIVAL = 0.05
MAX_TABLES = 1024
_NOTHING = DraftTree.empty()


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
        warm_up()
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
        """Indexes prompt and prediction. A request opened in ALONE drafts from these only, by odds
        of its own. Raises ValueError without a namespace."""
        self.close(sequence_id)
        is_alone = namespace == ALONE
        live = None if is_alone else self._indexes.live(namespace)
        odds = LearnedOdds() if is_alone else self._table(namespace)
        self._requests[sequence_id] = OpenRequest(
            live, odds, prompt_ids, prediction_ids, self._window_tokens
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
        found = [self._request_of(row) for row in rows]
        order = sorted(range(len(rows)), key=lambda number: found[number].namespace)
        asked = [rows[number] for number in order]
        requests = [found[number] for number in order]
        self._batch.begin(
            [
                (request.reader, len(row.context), 0, row.max_nodes, row.max_depth)
                for row, request in zip(asked, requests, strict=True)
            ]
        )
        for place, (row, request) in enumerate(zip(asked, requests, strict=True)):
            request.look_at_own(self._batch, place, row.context, self._min_survival)
        self._look_at_live(requests)
        trees = [_NOTHING] * len(rows)
        summaries = self._batch.summaries.tolist()
        for place, (number, request) in enumerate(zip(order, requests, strict=True)):
            request.matched = int(summaries[place][layout.MATCHED])
            trees[number] = self._tree(place, summaries[place])
        return trees

    def _request_of(self, row: DraftRow) -> OpenRequest:
        request = self._requests.get(row.sequence_id)
        if request is None or request.namespace not in (row.namespace, ALONE):
            raise ValueError(f"sequence {row.sequence_id} is not open in the row's namespace")
        return request

    def _look_at_live(self, requests: list[OpenRequest]) -> None:
        first = 0
        for _, group in groupby(requests, key=lambda request: id(request.live)):
            same = list(group)
            end = first + len(same)
            live, odds = same[0].live, same[0].odds.odds
            if live is not None:
                live.lookup(self._batch, first, end, odds, self._min_survival)
            first = end

    def _tree(self, place: int, summary: list[float]) -> DraftTree:
        num_nodes = int(summary[layout.NUM_DRAFTED])
        if num_nodes == 0:
            return _NOTHING
        batch = self._batch
        tokens, parents, depths, cells = batch.nodes[place, :, :num_nodes]
        return RetrievedTree(
            tokens, parents, depths, batch.survival[place, :num_nodes],
            layout.SOURCE_NAMES[int(summary[layout.SOURCE])], cells, batch.firsts[place],
        )  # fmt: skip

    def learn(self, feedback: Sequence[Feedback]) -> None:
        """Outcomes of own trees, whether verified or shadow; others teach nothing here."""
        for entry in feedback:
            if isinstance(entry.tree, RetrievedTree):
                request = self._requests.get(entry.row.sequence_id)
                odds = self._table(entry.row.namespace) if request is None else request.odds
                odds.learn(entry.tree, entry.followed)

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
        shared = [r for r in self._requests.values() if r.live is not None]
        readers = [(id(r.live), r.reader) for r in shared]
        assert len(set(readers)) == len(readers), "two sequences share a reader"
