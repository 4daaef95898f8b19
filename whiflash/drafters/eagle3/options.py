"""How an EAGLE-3 drafter drafts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from whiflash.core.errors import ConfigError
from whiflash.core.shape import CHAIN, DraftShape
from whiflash.drafters.spec import DrafterSpec, OptionReader, one_of, positive, share
from whiflash.drafters.trees.eagle2 import Eagle2Growth
from whiflash.drafters.trees.growth import Growth
from whiflash.drafters.trees.talon import TalonGrowth
from whiflash.models.draft.boundaries import parse_boundaries

EAGLE2, TALON = "eagle2", "talon"
TREES = (CHAIN, EAGLE2, TALON)
# (depth, nodes, top_k): EAGLE-2's are the reference's 7 + 1 levels and 60 - 1 nodes; TALON's node
# budget and start width are those of facts/paper.md 8.3.
_DEFAULTS = {CHAIN: (6, 6, 1), EAGLE2: (8, 59, 10), TALON: (12, 59, 10)}
DEFAULT_MU = 0.03


@dataclass(frozen=True, slots=True)
class Eagle3Options:
    """tree: chain, eagle2 or talon. depth: deepest node; nodes: most nodes; top_k: children of a
    node; mu: TALON's gate. boundaries None is what the checkpoint says, context_limit None the
    target's. Raises ConfigError on values that exclude each other."""

    tree: str = EAGLE2
    depth: int = _DEFAULTS[EAGLE2][0]
    nodes: int = _DEFAULTS[EAGLE2][1]
    top_k: int = _DEFAULTS[EAGLE2][2]
    mu: float = DEFAULT_MU
    boundaries: tuple[int, ...] | None = None
    context_limit: int | None = None

    def __post_init__(self) -> None:
        if self.tree not in TREES:
            raise ConfigError(f"tree {self.tree!r} is unknown; take one of {', '.join(TREES)}")
        if min(self.depth, self.nodes, self.top_k) < 1 or not 0 < self.mu <= 1:
            raise ConfigError("depth, nodes and top_k are at least 1, mu lies in (0, 1]")
        if self.tree == CHAIN and self.top_k != 1:
            raise ConfigError("tree=chain has one child a node: leave top_k out, or tree=eagle2")

    @classmethod
    def of_tree(cls, tree: str) -> Eagle3Options:
        """The defaults of one kind of tree."""
        depth, nodes, top_k = _DEFAULTS.get(tree, _DEFAULTS[EAGLE2])
        return cls(tree, depth, nodes, top_k)

    @classmethod
    def of_spec(cls, spec: DrafterSpec) -> Eagle3Options:
        """From "eagle3:DIR,tree=...". Raises ConfigError on unknown options and values."""
        reader = OptionReader(spec)
        base = cls.of_tree(reader.take("tree", EAGLE2, one_of(*TREES)))
        depth = reader.take("depth", base.depth, positive)
        nodes = depth if base.tree == CHAIN else base.nodes
        options = replace(
            base,
            depth=depth,
            nodes=reader.take("nodes", nodes, positive),
            top_k=reader.take("top_k", base.top_k, positive),
            mu=reader.take("mu", base.mu, share),
            boundaries=reader.take("boundaries", None, parse_boundaries),
            context_limit=reader.take("context_limit", None, positive),
        )
        reader.finish()
        return options

    @property
    def max_scratch(self) -> int:
        """Most nodes that a tree runs: `top_k` a level, or all that TALON may keep."""
        return max(self.depth * self.top_k, self.nodes)

    @property
    def shape(self) -> DraftShape:
        """Of its drafts."""
        is_chain = self.tree == CHAIN
        return DraftShape(self.tree, min(self.nodes, self.depth) if is_chain else self.nodes)

    def growth(self, max_nodes: int, max_depth: int) -> Growth:
        """A tree within these options and what the target will verify of the row."""
        nodes, depth = min(self.nodes, max_nodes), min(self.depth, max_depth)
        if self.tree == TALON:
            return TalonGrowth(nodes, depth, self.top_k, self.mu)
        if self.tree == CHAIN:
            depth = min(depth, nodes)
        return Eagle2Growth(nodes, depth, self.top_k)
