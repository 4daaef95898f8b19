"""The first half of a round: free proposals, the choice of arms, drafts, trimming."""

from __future__ import annotations

import time
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field, replace

import numpy as np

from whiflash.core.draft import DraftTree
from whiflash.core.rows import NONE, Choice, DraftRow, RouteRow
from whiflash.drafters.scores import draft_sampling
from whiflash.engine.arms import Arms
from whiflash.engine.catch_up import CatchUps
from whiflash.engine.hold import Awaited, Hold
from whiflash.engine.sequence import Sequence
from whiflash.routing.router import Router

_EMPTY = DraftTree.empty()


@dataclass(slots=True)
class RowDraft:
    """What one sequence does this round. `proposals` are the untrimmed trees by arm."""

    sequence: Sequence
    choice: Choice
    tree: DraftTree = _EMPTY
    route: RouteRow | None = None
    draft_row: DraftRow | None = None
    proposals: dict[str, DraftTree] = field(default_factory=dict)

    @property
    def is_pinned(self) -> bool:
        """Whether the request asked for an arm by name."""
        return self.sequence.request.drafter is not None

    @property
    def arm(self) -> str:
        """What the round came to: a choice whose draft is empty is a plain round."""
        return self.choice.arm if len(self.tree) else NONE


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """What the target will verify of one row at most."""

    max_nodes: int
    max_depth: int
    context_limit: int

    def of(self, sequence: Sequence) -> tuple[int, int]:
        """(nodes, depth). A round emits depth + 1 tokens, so a draft may not be as deep as the
        tokens that are left, nor reach past the context limit."""
        request = sequence.request
        nodes = (
            self.max_nodes if request.max_draft is None else min(self.max_nodes, request.max_draft)
        )
        left = request.params.max_tokens - sequence.num_generated
        depth = min(self.max_depth, left - 1, self.context_limit - sequence.num_ids)
        return (nodes, depth) if nodes > 0 and depth > 0 else (0, 0)


@dataclass(frozen=True, slots=True)
class _DistantRound:
    """Rows that wait for a drafter elsewhere, in the order of `queries`."""

    arm: str
    rows: list[RowDraft]
    queries: list[DraftRow]
    awaited: Awaited


def _that_chose(arm: str, rows: list[RowDraft]) -> list[RowDraft]:
    return [row for row in rows if row.choice.arm == arm and arm not in row.proposals]


class Drafting:
    """Runs drafters behind the protocol; in-process and remote ones look the same here."""

    def __init__(
        self,
        arms: Arms,
        router: Router,
        catch_ups: CatchUps,
        limits: DraftLimits,
        vocab_size: int,
        hold_ms: float | None = None,
    ) -> None:
        """hold_ms: most that a step waits for drafts made elsewhere; None is the fixed cost of a
        verify forward as it is measured."""
        self._arms = arms
        self._drafters = arms.drafters
        self.catch_ups = catch_ups
        self._router = router
        self._limits = limits
        self._vocab_size = vocab_size
        self.hold = Hold(lambda: router.costs.verify_ms(1) if hold_ms is None else hold_ms)
        self.draft_ms: dict[str, float] = {}
        self.look_ms = 0.0
        self.num_invalid_nodes = 0
        self.num_masked_nodes = 0

    def run(self, sequences: Rows[Sequence], base_rows: int) -> list[RowDraft]:
        """A RowDraft per decoding sequence. `base_rows`: prefill rows of the same forward."""
        started = time.perf_counter()
        self.draft_ms = {}
        self.catch_ups.begin_step()
        rows = [RowDraft(s, Choice(NONE, 0)) for s in sequences]
        candidates = [row for row in rows if self._prepare(row)]
        if candidates:
            self._propose_free(candidates)
            self._choose(candidates, base_rows + len(rows) - len(candidates), len(rows))
            self._propose_chosen(candidates)
            self._trim(candidates, base_rows + len(rows) - len(candidates))
        took_ms = 1e3 * (time.perf_counter() - started)
        self.look_ms = max(took_ms - self._drafters_ms(), 0.0)  # what is elsewhere overlaps
        return rows

    def _drafters_ms(self) -> float:
        """What drafters took that are asked only when they are chosen."""
        asked = sum(ms for arm, ms in self.draft_ms.items() if not self._drafters[arm].is_free)
        return asked + sum(ms for _, ms in self.catch_ups.spent.values())

    def _prepare(self, row: RowDraft) -> bool:
        sequence = row.sequence
        if not sequence.is_awake or not self._arms.may_draft(sequence):
            return False
        nodes, depth = self._limits.of(sequence)
        row.draft_row = DraftRow(
            sequence.id, sequence.request.namespace, sequence.ids, nodes, depth,
            draft_sampling(sequence.request.params, sequence.sampler.key, sequence.num_generated),
        )  # fmt: skip
        if not sequence.is_draft_open:
            self._open(sequence)
        return nodes > 0

    def _open(self, sequence: Sequence) -> None:
        prompt = sequence.ids[: sequence.num_prompt]  # the answer follows in row.context
        prediction = np.asarray(sequence.request.prediction_ids, np.int32)
        for name in self._arms.named(sequence):
            if not self._arms.has_begun(name, sequence):
                self._drafters[name].open(
                    self._arms.key(name, sequence), sequence.request.draft_namespace, prompt,
                    prediction,
                )  # fmt: skip
        sequence.is_draft_open = True

    def _propose_free(self, rows: list[RowDraft]) -> None:
        for name, drafter in self._drafters.items():
            if drafter.is_free:
                self._propose(name, [r for r in rows if name in self._arms.eligible(r.sequence)])

    def _propose_chosen(self, rows: list[RowDraft]) -> None:
        distant = self._ask_distant(rows)
        for name, drafter in self._drafters.items():
            if not drafter.is_distant:
                self._propose(name, _that_chose(name, rows))
        self._collect(distant)
        for row in rows:
            row.tree = row.proposals.get(row.choice.arm, _EMPTY)
        if self._router.drafts_all:
            self._propose_rest([row for row in rows if not row.is_pinned])

    def _ask_distant(self, rows: list[RowDraft]) -> list[_DistantRound]:
        """All that is drafted elsewhere is asked for before anything is waited for."""
        asked = []
        for name, drafter in self._drafters.items():
            if not (drafter.is_distant and drafter.is_up):
                continue
            ready = self._caught_up(name, _that_chose(name, rows))
            queries = [self._query(name, row) for row in ready]
            round_id = drafter.ask(queries) if ready else None
            if round_id is not None:
                asked.append(_DistantRound(name, ready, queries, Awaited(drafter, round_id)))
        return asked

    def _collect(self, asked: list[_DistantRound]) -> None:
        self.hold.collect([one.awaited for one in asked])
        for one in asked:
            self._note_ms(one.arm, one.awaited.waited_ms)
            trees = one.awaited.trees or []
            for row, query, tree in zip(one.rows, one.queries, trees, strict=False):
                self._note_proposal(one.arm, row, query, tree)

    def _note_proposal(self, name: str, row: RowDraft, query: DraftRow, tree: DraftTree) -> None:
        row.proposals[name] = self._in_grammar(row.sequence, self._admissible(tree, query))

    def _propose_rest(self, rows: list[RowDraft]) -> None:
        """Proposals that nobody will verify: the text scores them (FeedbackBook), for the log."""
        for name in self._drafters:
            asked = [row for row in rows if name not in row.proposals]
            self._propose(name, [r for r in asked if name in self._arms.eligible(r.sequence)])

    def _propose(self, name: str, rows: list[RowDraft]) -> None:
        rows = self._caught_up(name, rows)
        if not rows:
            return
        started = time.perf_counter()
        asked = [self._query(name, row) for row in rows]
        trees = self._drafters[name].propose(asked)
        for row, query, tree in zip(rows, asked, trees, strict=True):
            self._note_proposal(name, row, query, tree)
        self._note_ms(name, 1e3 * (time.perf_counter() - started))

    def _caught_up(self, name: str, rows: list[RowDraft]) -> list[RowDraft]:
        """The rows that the arm can draft for, after absorbing what they lack."""
        caught_up = self.catch_ups.run(name, [row.sequence for row in rows])
        return [row for row, is_ready in zip(rows, caught_up, strict=True) if is_ready]

    def _note_ms(self, name: str, ms: float) -> None:
        self.draft_ms[name] = self.draft_ms.get(name, 0.0) + ms

    def _query(self, name: str, row: RowDraft) -> DraftRow:
        assert row.draft_row is not None
        key = self._arms.key(name, row.sequence)
        return replace(row.draft_row, sequence_id=key)

    def _admissible(self, tree: DraftTree, query: DraftRow) -> DraftTree:
        """Ids the target lacks and nodes over the limits are dropped and counted (llama.cpp
        #28158: an id equal to the vocabulary size went through unguarded)."""
        kept = tree.valid_for(self._vocab_size).limited(query.max_nodes, query.max_depth)
        self.num_invalid_nodes += len(tree) - len(kept)
        return kept

    def _in_grammar(self, sequence: Sequence, tree: DraftTree) -> DraftTree:
        """Nodes that no mask would let through are never verified (vllm #44006)."""
        if sequence.grammar is None or not len(tree):
            return tree
        kept = sequence.grammar.prune(tree)
        self.num_masked_nodes += len(tree) - len(kept)
        return kept

    def _choose(self, rows: list[RowDraft], base_rows: int, load: int) -> None:
        for row in rows:
            row.route = self._route_row(row, load)
        free = [row for row in rows if not row.is_pinned]
        for row in rows:
            pinned = row.sequence.request.drafter
            if pinned in self._arms.eligible(row.sequence) and row.draft_row is not None:
                row.choice = Choice(pinned, row.draft_row.max_nodes)
        routes = [row.route for row in free if row.route is not None]
        for row, choice in zip(free, self._router.choose(routes, base_rows), strict=True):
            row.choice = choice

    def _route_row(self, row: RowDraft, load: int) -> RouteRow:
        sequence, query = row.sequence, row.draft_row
        assert query is not None
        assert sequence.signals is not None
        arms = self._arms.eligible(sequence)
        return RouteRow(
            sequence_id=sequence.id,
            namespace=sequence.request.namespace,
            signals=sequence.signals,
            arms=(NONE, *arms),
            drafts=dict(row.proposals),
            matched=max((self._drafters[a].matched(sequence.id) for a in arms), default=0),
            max_nodes=query.max_nodes,
            context_tokens=sequence.num_ids,
            backlog=self.catch_ups.backlogs(sequence, arms),
            load=load,
            recent_rates=sequence.recent.rates(),
        )

    def _trim(self, rows: list[RowDraft], base_rows: int) -> None:
        free = [row for row in rows if not row.is_pinned]
        pinned_rows = sum(1 + len(row.tree) for row in rows) - sum(1 + len(r.tree) for r in free)
        trimmed = self._router.trim(
            [row.tree for row in free], [row.choice for row in free], base_rows + pinned_rows
        )
        for row, tree in zip(free, trimmed, strict=True):
            row.tree = tree
