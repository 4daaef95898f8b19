"""goodput: what each arm's nodes are worth here and now, learned online.

What it does. It predicts the survival of each arm's nodes and leaves arm and budget to the joint
choice. A prediction is the draft's own survival as far as it can be trusted (`routing.trust`; for
an arm that has not drafted yet, a prior that just pays its cost) times a learned factor: accepted
over expected tokens, kept per namespace and arm by match-length bucket, entropy bucket and node
rank. Counts decay with each observation and fade with time, so no verdict stands for good. No table
is shared between namespaces; all start from the same prior. Rounds that ended a turn are left out:
their accepted run is cut short. An arm that was passed over for long is tried on a few nodes,
within a bounded share of time.

When it is neutral. Where nothing is drafted it answers nothing and costs nothing; where drafts do
not pay, factors sink until the joint choice takes `none`, the row rests between looks, and only
the exploration floor is spent.

Parameters.
    window: int = 200             observations that a factor remembers.
    prior_tokens: float = 4.0     expected tokens that the prior factor counts for.
    fade_rounds: int = 4000       row-rounds after which unrefreshed evidence counts half.
    explore_after: int = 50       offers passed over, per bucket, before an arm is tried again.
    explore_nodes: int = 4        nodes of such a try.
    explore_share: float = 0.005  share of time that tries may cost.
    max_namespaces: int = 1024    learned tables kept; the longest unused is dropped.

Example. `make_policy("goodput", costs, explore_share=0.01)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.routing.costs import Costs
from whiflash.routing.explorer import Explorer
from whiflash.routing.factor_table import (
    NUM_RANK_BUCKETS,
    Cell,
    FactorTable,
    Floats,
    bucket_of,
    rank_buckets,
)
from whiflash.routing.offers import load_of
from whiflash.routing.prior import PriorSurvival
from whiflash.routing.survival import ranked
from whiflash.routing.trust import trusted


class _Pair(NamedTuple):
    """A row and an arm that it could draft with, and how many nodes that is at most."""

    place: int
    row: RouteRow
    cell: Cell
    num_nodes: int


class GoodputPolicy:
    """Survival per arm and node rank, learned online; see the module's docstring."""

    name = "goodput"
    may_rest = True

    def __init__(
        self,
        costs: Costs,
        *,
        window: int = 200,
        prior_tokens: float = 4.0,
        fade_rounds: int = 4000,
        explore_after: int = 50,
        explore_nodes: int = 4,
        explore_share: float = 0.005,
        max_namespaces: int = 1024,
    ) -> None:
        if min(window, fade_rounds, explore_after, explore_nodes, max_namespaces) < 1:
            raise ConfigError("policy 'goodput' needs window, fade_rounds, explore_after, "
                              "explore_nodes and max_namespaces of at least 1")  # fmt: skip
        if not 0.0 <= explore_share <= 1.0 or prior_tokens <= 0.0:
            raise ConfigError("policy 'goodput' needs explore_share in [0, 1] and prior_tokens "
                              f"above 0, got {explore_share} and {prior_tokens}")  # fmt: skip
        self._prior = PriorSurvival(costs)
        self._explorer = Explorer(costs, explore_after, explore_nodes, explore_share)
        self._table = FactorTable(window, prior_tokens, fade_rounds, max_namespaces)

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        self._explorer.begin_step(load_of(rows))
        fixed: dict[int, tuple[str, int]] = {}
        survival: dict[int, dict[str, Floats]] = {}
        pairs: list[_Pair] = []
        for index, row in enumerate(rows):
            offered = _pairs_of(index, row)
            tried = next((pair for pair in offered if self._is_due(pair)), None)
            if tried is None:
                pairs += offered
            else:
                fixed[index] = tried.cell.arm, min(tried.num_nodes, self._explorer.num_nodes)
        for pair, odds in zip(pairs, self._calibrated(pairs), strict=True):
            survival.setdefault(pair.place, {})[pair.cell.arm] = odds[: pair.num_nodes]
        return [Prediction(fixed.get(index), survival.get(index, {})) for index in range(len(rows))]

    def _is_due(self, pair: _Pair) -> bool:
        return self._explorer.wants(pair.row, pair.cell, pair.num_nodes)

    def _calibrated(self, pairs: Sequence[_Pair]) -> Floats:
        """float64 [N, K]: survival by rank with what was learned."""
        odds = self._claimed(pairs)
        factors = self._table.factors([pair.cell for pair in pairs])
        odds *= factors[:, rank_buckets(odds.shape[1])]
        np.minimum(odds, 1.0, out=odds)
        return np.minimum.accumulate(odds, axis=1, out=odds)

    def _claimed(self, pairs: Sequence[_Pair]) -> Floats:
        """float64 [N, K]: survival by rank before learning, as far as the draft's own can be
        trusted where one is at hand."""
        trees = [pair.row.drafts.get(pair.cell.arm, _EMPTY) for pair in pairs]
        odds = ranked(trees)
        width = max((pair.num_nodes for pair in pairs), default=0)
        if odds.shape[1] < width:
            odds = np.pad(odds, ((0, 0), (0, width - odds.shape[1])))
        at_hand = [i for i, pair in enumerate(pairs) if pair.cell.arm in pair.row.drafts]
        odds[at_hand] = trusted([pairs[i].row for i in at_hand], odds[at_hand])
        for index, pair in enumerate(pairs):
            if pair.cell.arm not in pair.row.drafts:
                prior = self._prior.of(pair.cell.arm, pair.num_nodes)
                odds[index, : pair.num_nodes] = prior
        return odds[:, :width]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        learned: list[_Pair] = []
        accepted: list[int] = []
        for index, outcome in enumerate(outcomes):
            row, drafted = outcome.row, outcome.drafted
            arm = outcome.choice.arm if drafted else NONE
            cell = Cell(row.namespace, arm, bucket_of(row))
            self._explorer.note(row, cell)
            if arm != NONE and not outcome.ended:
                learned.append(_Pair(index, row, cell, drafted))
                accepted.append(outcome.accepted)
        if learned:
            self._learn(learned, np.array(accepted))

    def _learn(self, pairs: list[_Pair], accepted: npt.NDArray[np.int_]) -> None:
        odds = self._claimed(pairs)
        ranks = np.arange(odds.shape[1])
        drafted = np.array([pair.num_nodes for pair in pairs])
        odds[ranks >= drafted[:, None]] = 0.0
        seen = (ranks < accepted[:, None]).astype(np.float64)
        # A tree's accepted ranks are not reported: its tokens are spread as they were expected.
        for index, pair in enumerate(pairs):
            if not pair.row.drafts.get(pair.cell.arm, _EMPTY).is_chain:
                seen[index] = odds[index] * (accepted[index] / max(odds[index].sum(), 1e-9))
        per_bucket = np.eye(NUM_RANK_BUCKETS)[rank_buckets(len(ranks))]
        self._table.observe([pair.cell for pair in pairs], odds @ per_bucket, seen @ per_bucket)

    def check_integrity(self) -> None:
        self._table.check_integrity()


_EMPTY = DraftTree.empty()


def _pairs_of(index: int, row: RouteRow) -> list[_Pair]:
    pairs: list[_Pair] = []
    bucket = bucket_of(row)
    for arm in row.arms:
        if arm == NONE:
            continue
        tree = row.drafts.get(arm)
        nodes = row.max_nodes if tree is None else min(row.max_nodes, tree.tokens.size)
        if nodes > 0:
            pairs.append(_Pair(index, row, Cell(row.namespace, arm, bucket), nodes))
    return pairs
