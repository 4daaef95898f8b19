"""DDTree: the most probable prefixes of a product of per-position marginals.

Source: arXiv 2604.12989 (Ringel, Romano), `ddtree.py` of liranringel/ddtree. A block drafter's
pass gives one distribution per position, whatever the earlier positions hold. Under their product
the expected number of accepted nodes of a tree is the sum of its prefixes' probabilities, so the
best tree of N nodes holds the N most probable prefixes. A best-first search finds them one by one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IdTable = npt.NDArray[np.int32]
WeightTable = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens that each position may take, most likely first.

    tokens:      int32 [D, K], target token ids, distinct within a position.
    log_weights: float64 [D, K], natural logarithms of probabilities (<= 0), falling along K;
                 -inf where a position has fewer than K candidates.
    """

    tokens: IdTable
    log_weights: WeightTable

    def flaw(self) -> str | None:
        """What is ill-formed about this table, or None."""
        weights = self.log_weights
        if self.tokens.ndim != 2 or self.tokens.shape != weights.shape:
            return f"tables of {self.tokens.shape} tokens and {weights.shape} weights"
        if not (weights <= 0).all():
            return "a log-probability is above 0 or NaN"
        if (weights[:, 1:] > weights[:, :-1]).any():
            return "candidates are not sorted"
        return None


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The chosen prefixes, one node each, most probable first; parents come before children.

    tokens, parents, depths: int32 [m] as in `DraftTree` (parents hold rows, 0 is the root).
    ranks:       int32 [m], place of the token among its position's candidates.
    log_weights: float64 [m], logarithm of the whole prefix's probability.
    """

    tokens: npt.NDArray[np.int32]
    parents: npt.NDArray[np.int32]
    depths: npt.NDArray[np.int32]
    ranks: npt.NDArray[np.int32]
    log_weights: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.tokens)


def most_probable_prefixes(candidates: Candidates, max_nodes: int) -> Prefixes:
    """The `max_nodes` most probable prefixes, fewer where the candidates run out.

    O(max_nodes log max_nodes). Among equals the prefix that was reached first comes first. Raises
    ValueError on an ill-formed table.
    """
    flaw = candidates.flaw()
    if flaw is not None:
        raise ValueError(f"candidates: {flaw}")
    nodes = _search(candidates.log_weights.tolist(), max_nodes)
    parents, depths, ranks = (
        np.array([node[field] for node in nodes], np.int32) for field in range(3)
    )
    tokens = candidates.tokens[depths - 1, ranks].astype(np.int32)
    log_weights = np.array([node[3] for node in nodes], np.float64)
    return Prefixes(tokens, parents, depths, ranks, log_weights)


def _search(weights: list[list[float]], max_nodes: int) -> list[tuple[int, int, int, float]]:
    """(parent row, depth, rank, log weight) of the nodes, in the order in which they are found.

    A prefix is reached from its parent (rank 0) or from its sibling one rank above, neither of
    which is less probable: so the heap's best is the best of all that is left.
    """
    row_weights = [0.0]
    nodes: list[tuple[int, int, int, float]] = []
    heap: list[tuple[float, int, int, int, int]] = []
    num_pushed = 0

    def push(parent: int, depth: int, rank: int) -> None:
        nonlocal num_pushed
        if depth > len(weights) or rank >= len(weights[depth - 1]):
            return
        weight = row_weights[parent] + weights[depth - 1][rank]
        if weight > -np.inf:
            num_pushed += 1
            heapq.heappush(heap, (-weight, num_pushed, parent, depth, rank))

    push(0, 1, 0)
    while heap and len(nodes) < max_nodes:
        negative, _, parent, depth, rank = heapq.heappop(heap)
        nodes.append((parent, depth, rank, -negative))
        row_weights.append(-negative)
        push(parent, depth, rank + 1)
        push(len(nodes), depth + 1, 0)
    return nodes
