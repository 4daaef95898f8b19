"""How long a retrieved draft is: by learned probabilities, or by rules that never learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from whiflash.core.draft import DraftTree
from whiflash.drafters.retrieval.drafter import DEFAULT_MIN_SURVIVAL
from whiflash.trajectories.index import layout

MAX_DEPTH: Final = 32


@dataclass(frozen=True, slots=True)
class DraftRule:
    """min_survival: least product of probabilities of a node; learns: whether outcomes change the
    probabilities. is_chain: one path, of at most max_depth nodes and match_factor (0: no matter)
    times the tokens matched. max_nodes: of the tree."""

    name: str
    min_survival: float = DEFAULT_MIN_SURVIVAL
    learns: bool = True
    max_nodes: int = 32
    max_depth: int = MAX_DEPTH
    is_chain: bool = False
    match_factor: float = 0.0

    @property
    def asked_nodes(self) -> int:
        """A chain is cut out of a tree, so more is asked for than is used."""
        return layout.MAX_NODES if self.is_chain else self.max_nodes

    def cut(self, tree: DraftTree, matched: int) -> DraftTree:
        """What is verified of a draft. matched: tokens of the context that were found."""
        if not self.is_chain or not len(tree):
            return tree
        depth = self.max_depth
        if self.match_factor:
            depth = min(depth, max(int(self.match_factor * matched), 1))
        return tree.keep(_main_path(tree) & (tree.depths <= depth))


def _main_path(tree: DraftTree) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The likeliest child of the likeliest child, and so on; siblings stand in order of survival
    (the tree grew best first)."""
    is_on = np.zeros(len(tree), np.bool_)
    row = 0
    for node, parent in enumerate(tree.parents.tolist()):
        if parent == row:
            is_on[node] = True
            row = node + 1
    return is_on


LEARNED: Final = DraftRule("learned")
RULES: Final = (
    DraftRule("learned cut, 16 nodes (the engine's default)", max_nodes=16, max_depth=16),
    DraftRule("learned cut at 0.05"),
    DraftRule("learned cut at 0.1", 0.1),
    DraftRule("learned cut at 0.2", 0.2),
    DraftRule("learned cut at 0.3", 0.3),
    DraftRule("learned cut at 0.5", 0.5),
    DraftRule("fixed probabilities at 0.05", 0.05, learns=False),
    DraftRule("fixed probabilities at 0.2", 0.2, learns=False),
    DraftRule("fixed probabilities at 0.5", 0.5, learns=False),
    DraftRule("chain of 4", 0.0, learns=False, is_chain=True, max_depth=4),
    DraftRule("chain of 8", 0.0, learns=False, is_chain=True, max_depth=8),
    DraftRule("chain of 16", 0.0, learns=False, is_chain=True, max_depth=16),
    DraftRule("chain, as long as the match", 0.0, learns=False, is_chain=True, match_factor=1),
    DraftRule("chain, twice the match", 0.0, learns=False, is_chain=True, match_factor=2),
    DraftRule("chain, 4 times the match", 0.0, learns=False, is_chain=True, match_factor=4),
)
"""The last but three are what others' lookups do; the match rules are SuffixDecoding's
(arXiv 2411.04975) factor without its scores."""
