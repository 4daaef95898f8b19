"""Shadow proposals: in spare time, drafts at a few past roots by arms that were not asked there.

The text does not depend on the arm, so the text that came says what such a draft would have
brought (design.md 7). Roots are drawn by chance, not by what the policy thought of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from whiflash.core.draft import DraftTree
from whiflash.core.rows import CatchUp, Choice, DraftRow, Feedback, Outcome, RouteRow
from whiflash.engine.arms import Arms
from whiflash.engine.counters import Counters
from whiflash.engine.drafting import RowDraft
from whiflash.engine.guard import GuardedTapDrafter
from whiflash.engine.prefix import PrefixStore
from whiflash.engine.prefix_entry import Ids, PrefixEntry
from whiflash.engine.publish import Publisher
from whiflash.engine.round_records import accepted_ranks
from whiflash.engine.sequence import Sequence
from whiflash.routing.regret import regret
from whiflash.routing.router import Router

SHADOW_SHARE = 1 / 32
"""Share of the roots that are drawn: the propensity of what is learned there."""

SHADOW_ID = 0
"""What drafters know the root in hand as; sequences begin at 1."""

MAX_TURN_ROOTS = 64
MAX_ROOTS = 256
"""Roots that are kept of a turn and in all, the latest ones."""

_NO_IDS = np.zeros(0, np.int32)


def is_drawn(sequence_id: int, position: int, share: float) -> bool:
    """The same roots in every run of the same requests."""
    drawn = blake2b(b"%d:%d" % (sequence_id, position), digest_size=8).digest()
    return int.from_bytes(drawn) < share * 2**64


@dataclass(slots=True, eq=False)
class ShadowRoot:
    """position: index of the root in the ids. choice: arm and nodes that the round there verified.
    missing: arms that are still to draft; drafted: trees of those that did, beside `proposals` of
    the round itself. entry: what its turn left."""

    sequence_id: int
    position: int
    route: RouteRow
    query: DraftRow
    choice: tuple[str, int]
    proposals: dict[str, DraftTree]
    missing: list[str]
    drafted: dict[str, DraftTree] = field(default_factory=dict)
    entry: PrefixEntry | None = None

    @property
    def text(self) -> Ids:
        """All ids of the turn that have K/V, the root at `position`."""
        assert self.entry is not None
        return self.entry.ids

    def followed(self, tree: DraftTree) -> tuple[int, ...]:
        """The text behind the root, as far as the tree goes or the turn went."""
        first = self.position + 1
        return tuple(self.text[first : first + tree.max_depth].tolist())


class Shadows:
    """Roots that were drawn: noted as rounds are run, drafted for when nobody waits, from the taps
    that lie beside a finished turn's KV. A root goes when its turn's KV goes.

    Drafters elsewhere are left out (they serve other verifiers too, whose load is not known here),
    and so are rows with a grammar, whose state at the root is gone. share: of roots, 0 to 1.
    """

    def __init__(
        self,
        arms: Arms,
        prefixes: PrefixStore,
        router: Router,
        publisher: Publisher,
        counters: Counters,
        vocab_size: int,
        window_tokens: int,
        share: float,
    ) -> None:
        self._arms = arms
        self._local = {n: d for n, d in arms.tap_drafters.items() if not d.is_distant}
        self._prefixes = prefixes
        self._router = router
        self._publisher = publisher
        self._counters = counters
        self._vocab_size = vocab_size
        self._window_tokens = window_tokens
        self._share = share
        self._drawn: dict[int, deque[ShadowRoot]] = {}
        self._waiting: deque[ShadowRoot] = deque(maxlen=MAX_ROOTS)

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def draw(self, row: RowDraft) -> None:
        """Before the round's tokens are appended: whether its root is one of those."""
        sequence, route, query = row.sequence, row.route, row.draft_row
        if not self._local or route is None or query is None or row.is_pinned:
            return
        position = sequence.num_ids - 1
        if sequence.grammar is None and is_drawn(sequence.id, position, self._share):
            missing = [arm for arm in self._local if arm in route.arms and arm not in row.proposals]
            root = ShadowRoot(
                sequence.id, position, _own(route), replace(query, sequence_id=SHADOW_ID),
                (row.arm, len(row.tree)), dict(row.proposals), missing,
            )  # fmt: skip
            self._drawn.setdefault(sequence.id, deque(maxlen=MAX_TURN_ROOTS)).append(root)

    def end(self, sequence: Sequence) -> None:
        """The turn ended, and its KV is with the finished turns' if it is anywhere."""
        self._waiting = deque((root for root in self._waiting if self._is_held(root)), MAX_ROOTS)
        entry = self._prefixes.left_by(sequence.draft_id)
        for root in self._drawn.pop(sequence.id, ()):
            if entry is not None and root.position + 1 < len(entry.ids):
                root.entry = entry
                root.query = replace(root.query, context=entry.ids[: root.position + 1])
                self._waiting.append(root)

    def _is_held(self, root: ShadowRoot) -> bool:
        return root.entry is not None and self._prefixes.holds(root.entry)

    def run_one(self) -> bool:
        """At most one proposal of one arm; False if there was none to make. Between two steps, and
        when nobody waits."""
        while self._waiting:
            root = self._waiting[0]
            if not self._is_held(root):
                self._waiting.popleft()
            elif root.missing:
                self._propose(root.missing.pop(), root)
                return True
            else:
                self._settle(self._waiting.popleft())
        return False

    def _propose(self, arm: str, root: ShadowRoot) -> None:
        drafter, row, query = self._local[arm], self._catch_up(arm, root), root.query
        if row is None or not self._arms.memory.admit_free(arm, row):
            self._counters.shadows_denied += 1
            return
        tree = _draft(drafter, row, query)
        self._arms.memory.release(SHADOW_ID)
        if tree is not None:
            tree = tree.valid_for(self._vocab_size)
            root.drafted[arm] = tree.limited(query.max_nodes, query.max_depth)
            self._counters.shadows += 1

    def _catch_up(self, arm: str, root: ShadowRoot) -> CatchUp | None:
        """What the arm absorbs for the root, at most a window as in a round; None where there are
        no taps."""
        assert root.entry is not None
        cache, weight_hash = root.entry.cache, self._local[arm].weight_hash
        start = max(root.position - self._window_tokens, cache.taps_from(weight_hash))
        if start >= root.position:
            return None
        return CatchUp(
            sequence_id=SHADOW_ID,
            start=start,
            token_ids=root.text[start : root.position + 1],
            fused=cache.fused_taps(weight_hash, start, root.position),
            is_window_start=start > 0,
        )

    def _settle(self, root: ShadowRoot) -> None:
        """The text scores the drafts; drafters, policy and log are told."""
        outcomes = [self._score(arm, tree, root) for arm, tree in root.drafted.items() if len(tree)]
        if outcomes:
            self._router.observe_shadows(outcomes)
        missed = self._regret(root)
        if missed is not None:
            self._counters.regret_roots += 1
            self._counters.regret += missed
        self._publisher.log_shadow(
            root.sequence_id, root.position, self._share, root.drafted, missed
        )

    def _score(self, arm: str, tree: DraftTree, root: ShadowRoot) -> Outcome:
        """`ended` where the text is too short to say what became of the tree, whatever it says of
        its first nodes: what is left out must not depend on how the draft did."""
        followed = root.followed(tree)
        feedback = [Feedback(root.query, tree, followed, verified=False)]
        self._local[arm].learn(feedback)
        self._publisher.log_settled(root.sequence_id, arm, feedback)
        accepted = len(accepted_ranks(tree, followed))
        return Outcome(
            root.route, Choice(arm, len(tree)), len(tree), accepted, accepted + 1,
            ended=len(followed) < tree.max_depth, propensity=self._share,
        )  # fmt: skip

    def _regret(self, root: ShadowRoot) -> float | None:
        """None where fewer than two arms proposed, or the text is too short to score them."""
        trees = root.proposals | root.drafted
        deepest = max((tree.max_depth for tree in trees.values()), default=0)
        if len(trees) < 2 or root.position + deepest >= len(root.text):
            return None
        ranks = {arm: accepted_ranks(tree, root.followed(tree)) for arm, tree in trees.items()}
        return regret(self._router.costs, root.choice, ranks, root.route.backlog)

    def check_integrity(self, live: Rows[Sequence]) -> None:
        """Raises AssertionError if a root outlived its turn, or its drafts are still held."""
        assert self._drawn.keys() <= {sequence.id for sequence in live}
        for drafter in self._local.values():
            assert drafter.absorbed(SHADOW_ID) == 0


def _draft(drafter: GuardedTapDrafter, row: CatchUp, query: DraftRow) -> DraftTree | None:
    """By a state of its own, which is gone afterwards; None where the drafter failed."""
    failures = drafter.num_failures
    drafter.open(SHADOW_ID, query.namespace, _NO_IDS, _NO_IDS)
    drafter.absorb([row])
    trees = drafter.propose([query]) if drafter.num_failures == failures else []
    drafter.close(SHADOW_ID)
    return trees[0] if drafter.num_failures == failures else None


def _own(route: RouteRow) -> RouteRow:
    """A hidden state is a row of its whole batch's array, which need not be kept for it."""
    hidden = route.signals.hidden
    if hidden is None:
        return route
    return replace(route, signals=replace(route.signals, hidden=hidden.copy()))
