"""Trim by price: after drafting, the batch keeps the nodes that pay for their verification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.rows import Choice
from whiflash.routing.assign import best_count, nodes_per_row
from whiflash.routing.costs import Costs
from whiflash.routing.offers import extra_verify_ms
from whiflash.routing.survival import Survival, capped, is_chain, likeliest_first

_EMPTY = DraftTree.empty()


class _Ranked(NamedTuple):
    """A tree's nodes from the most likely on: order is None for a chain (already in order)."""

    order: npt.NDArray[np.intp] | None
    odds: Survival


def trim(
    trees: Sequence[DraftTree],
    choices: Sequence[Choice],
    costs: Costs,
    price: float,
    base_tokens: int,
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
    """
    ranks = [_rank(tree, choice) for tree, choice in zip(trees, choices, strict=True)]
    keep = [len(rank.odds) for rank in ranks]
    priced = [i for i, choice in enumerate(choices) if keep[i] and not choice.is_fixed]
    if any(choices[i].survival is None for i in priced):
        base = base_tokens + sum(keep) - sum(keep[i] for i in priced)
        counts = _priced_counts([ranks[i].odds for i in priced], costs, price, base)
        for index, count in zip(priced, counts, strict=True):
            keep[index] = count
    return [_first(t, r, k) for t, r, k in zip(trees, ranks, keep, strict=True)]


def _rank(tree: DraftTree, choice: Choice) -> _Ranked:
    budget = min(choice.budget, tree.tokens.size)
    believed = choice.survival
    if is_chain(tree) or budget == 0:
        odds = capped(tree) if believed is None else believed
        return _Ranked(None, odds[:budget])
    odds = capped(tree)
    order = likeliest_first(odds)
    return _Ranked(order, (odds[order] if believed is None else believed)[:budget])


def _priced_counts(odds: list[Survival], costs: Costs, price: float, base_tokens: int) -> list[int]:
    lengths = [len(row) for row in odds]
    table = np.zeros((len(odds), max(lengths)))
    for row, values in zip(table, odds, strict=True):
        row[: len(values)] = values
    flat = table[table > 0.0]
    extra = extra_verify_ms(costs, base_tokens, len(flat))
    count, _ = best_count(flat, extra, price)
    if count == 0:
        return [0] * len(odds)
    counts: list[int] = nodes_per_row(table, count).tolist()
    return counts


def _first(tree: DraftTree, rank: _Ranked, count: int) -> DraftTree:
    """The `count` most likely nodes of the tree."""
    if count == tree.tokens.size:
        return tree
    if count == 0:
        return _EMPTY
    if rank.order is None:
        return DraftTree(
            tree.tokens[:count], tree.parents[:count], tree.depths[:count],
            tree.survival[:count], tree.source,
        )  # fmt: skip
    nodes = np.sort(rank.order[:count])
    new_row = np.zeros(len(tree) + 1, np.int32)
    new_row[nodes + 1] = np.arange(1, count + 1)
    parents = new_row[tree.parents[nodes]]
    return DraftTree(
        tree.tokens[nodes], parents, tree.depths[nodes], tree.survival[nodes], tree.source
    )
