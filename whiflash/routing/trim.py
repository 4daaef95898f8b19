"""Trim by price: after drafting, the batch keeps the nodes that pay for their verification."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from whiflash.core.draft import DraftTree
from whiflash.core.rows import Choice
from whiflash.routing.assign import best_count, nodes_per_row
from whiflash.routing.costs import Costs
from whiflash.routing.offers import extra_verify_ms
from whiflash.routing.survival import Survival, capped, likeliest_first, ranked

Calibration = Callable[[str, Survival], Survival]
_EMPTY = DraftTree.empty()


def trim(
    trees: Sequence[DraftTree],
    choices: Sequence[Choice],
    costs: Costs,
    price: float,
    base_tokens: int,
    calibrated: Calibration | None = None,
) -> list[DraftTree]:
    """The trees of a step, in order, each with the nodes worth verifying.

    For every m the m most likely nodes of all rows are worth sum(survival) - price *
    (verify(base + m) - verify(base)); the best m is kept, the smallest on a tie. A node counts for
    at most its parent, and parents come first among equals, so what is kept is closed under
    ancestors. Each row is held to its choice's budget. Rows whose choice was fixed are held to
    the budget alone, and count as base.

    A step whose choices all carry their survival was priced along these very drafts when arms were
    chosen; it is only cut to its budgets.

    base_tokens: rows of the forward that are there anyway: a root per row, and prefill.
    calibrated:  of an arm, what survival by rank is worth that its drafts claim; rising in it.
    """
    keep = [min(c.budget, t.tokens.size) for t, c in zip(trees, choices, strict=True)]
    priced = [i for i, choice in enumerate(choices) if keep[i] and not choice.is_fixed]
    if any(choices[i].survival is None for i in priced):
        base = base_tokens + sum(keep) - sum(keep[i] for i in priced)
        odds = _odds([trees[i] for i in priced], [choices[i] for i in priced], calibrated)
        for index, count in zip(priced, _worthwhile(odds, costs, price, base), strict=True):
            keep[index] = count
    return [_likeliest(tree, count) for tree, count in zip(trees, keep, strict=True)]


def _odds(
    trees: Sequence[DraftTree], choices: Sequence[Choice], calibrated: Calibration | None
) -> Survival:
    """float64 [N, K]: survival by rank as the policy believes it, 0 behind each budget."""
    odds = ranked(trees)
    for row, choice in zip(odds, choices, strict=True):
        if choice.survival is not None:
            size = min(len(row), choice.budget)
            row[:size] = choice.survival[:size]
        elif calibrated is not None:
            live = row > 0.0
            row[live] = calibrated(choice.arm, row[live])
    budgets = np.array([choice.budget for choice in choices])
    odds[np.arange(odds.shape[1]) >= budgets[:, None]] = 0.0
    return odds


def _worthwhile(odds: Survival, costs: Costs, price: float, base_tokens: int) -> list[int]:
    """Nodes per row that pay for their verification."""
    live = odds[odds > 0.0]
    extra = extra_verify_ms(costs, base_tokens, live.size)
    count, _ = best_count(live, extra, price)
    if count == 0:
        return [0] * len(odds)
    counts: list[int] = nodes_per_row(odds, count).tolist()
    return counts


def _likeliest(tree: DraftTree, count: int) -> DraftTree:
    """The `count` most likely nodes of the tree."""
    if count == tree.tokens.size:
        return tree
    if count == 0:
        return _EMPTY
    if tree.is_chain:
        return DraftTree(
            tree.tokens[:count], tree.parents[:count], tree.depths[:count],
            tree.survival[:count], tree.source,
        )  # fmt: skip
    nodes = np.sort(likeliest_first(capped(tree))[:count])
    new_row = np.zeros(len(tree) + 1, np.int32)
    new_row[nodes + 1] = np.arange(1, count + 1)
    parents = new_row[tree.parents[nodes]]
    return DraftTree(
        tree.tokens[nodes], parents, tree.depths[nodes], tree.survival[nodes], tree.source
    )
