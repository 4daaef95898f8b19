"""The DDTree drafter: DFlash's marginals, and a tree of their most probable prefixes."""

from __future__ import annotations

from whiflash.core.rows import DraftRow
from whiflash.core.shape import DraftShape
from whiflash.drafters.dflash.drafter import DFlashDrafter
from whiflash.drafters.dflash.load import DFlashParts
from whiflash.drafters.trees.ddtree import Candidates, Prefixes, most_probable_prefixes

NAME = "ddtree"


class DDTreeDrafter(DFlashDrafter):
    """Implements TapDrafter. At T = 0 the trees are the reference's. At T > 0 each position's
    candidates are ranked and weighed by their perturbed scores: noise belongs to the position, so
    that the first candidate of each is what the chain would draft, and the tree spends its nodes
    where target and drafter are likeliest to part.
    """

    def __init__(self, parts: DFlashParts, max_nodes: int, name: str = NAME) -> None:
        super().__init__(parts, name)
        self.max_nodes = max_nodes

    @property
    def draft_shape(self) -> DraftShape:
        return DraftShape(NAME, self.max_nodes)

    def _num_candidates(self, row: DraftRow) -> int:
        return min(self.max_nodes, row.max_nodes)

    def _grow(self, marginals: Candidates, max_nodes: int) -> Prefixes:
        return most_probable_prefixes(marginals, min(self.max_nodes, max_nodes))
