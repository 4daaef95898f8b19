"""Survival of a draft's nodes, capped by the parent's, in order of likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree

Survival = npt.NDArray[np.float64]


def capped(tree: DraftTree) -> Survival:
    """float64 [m] in [0, 1]: a node is accepted only if its parent is. NaN counts as 0."""
    if tree.is_chain:
        odds = _clean(tree.survival.astype(np.float64))
        return np.minimum.accumulate(odds, out=odds)
    rows = _capped_rows([tree])
    return rows.ravel()


def likeliest_first(odds: Survival) -> npt.NDArray[np.intp]:
    """Node numbers by falling survival. Among equals the earlier node, so parents come first."""
    return np.argsort(-odds, kind="stable")


def ranked(trees: Sequence[DraftTree]) -> Survival:
    """float64 [N, K]: capped survival of each tree's nodes by rank, 0 behind the end."""
    width = max((tree.survival.size for tree in trees), default=0)
    odds = np.zeros((len(trees), width))
    branched: list[int] = []
    for index, tree in enumerate(trees):
        odds[index, : tree.survival.size] = tree.survival
        if not tree.is_chain:
            branched.append(index)
    _clean(odds)
    if branched:
        values = _capped_rows([trees[index] for index in branched])
        odds[branched, : values.shape[1]] = -np.sort(-values, axis=1)
    return np.minimum.accumulate(odds, axis=1, out=odds)


def _capped_rows(trees: Sequence[DraftTree]) -> Survival:
    """float64 [N, K] by node, 0 behind the end: each node takes the least of its path, whose
    length covered doubles with each pass."""
    width = max(tree.survival.size for tree in trees) + 1
    odds = np.zeros((len(trees), width))
    above = np.zeros((len(trees), width), np.intp)
    for index, tree in enumerate(trees):
        odds[index, 1 : tree.survival.size + 1] = tree.survival
        above[index, 1 : tree.survival.size + 1] = tree.parents
    _clean(odds)
    odds[:, 0] = 1.0
    above += np.arange(len(trees))[:, None] * width
    flat, parents = odds.ravel(), above.ravel()
    for _ in range(width.bit_length()):
        lower = np.minimum(flat, flat[parents])
        if np.array_equal(lower, flat):
            break
        flat, parents = lower, parents[parents]
    return flat.reshape(odds.shape)[:, 1:]


def _clean(odds: Survival) -> Survival:
    # fmax first: it turns NaN into 0.
    np.fmax(odds, 0.0, out=odds)
    return np.minimum(odds, 1.0, out=odds)
