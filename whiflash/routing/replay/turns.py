"""A logged turn: its text as positions, and at its roots what every arm proposed."""

from __future__ import annotations

from dataclasses import dataclass, field

from whiflash.core.draft import DraftTree
from whiflash.core.signals import Signals


@dataclass(frozen=True, slots=True)
class Proposal:
    """One arm's draft at a root.

    survival: by rank, as far as logged. ranks: by depth, the ranks of the nodes that came true;
    None where the log does not say what became of it.
    """

    nodes: int
    survival: tuple[float, ...] = ()
    ranks: tuple[int, ...] | None = None

    @property
    def is_known(self) -> bool:
        return self.nodes == 0 or self.ranks is not None

    def accepted(self, budget: int) -> int:
        """Accepted nodes if the `budget` likeliest were verified."""
        return sum(rank < budget for rank in self.ranks or ())

    def tree(self) -> DraftTree:
        """A chain of the same survival by rank: all that a policy reads of a draft."""
        known = list(self.survival[: self.nodes])
        odds = known + [known[-1] if known else 0.0] * (self.nodes - len(known))
        return DraftTree.chain([0] * self.nodes, odds)


@dataclass(slots=True)
class Root:
    """What was known at a root. max_nodes: 0 where the row may not draft; emitted: tokens of the
    round that was run there."""

    signals: Signals
    matched: int
    max_nodes: int
    emitted: int
    proposals: dict[str, Proposal] = field(default_factory=dict)

    def known(self, arm: str) -> Proposal | None:
        """The arm's proposal if the log holds it and what became of it."""
        proposal = self.proposals.get(arm)
        return proposal if proposal is not None and proposal.is_known else None


@dataclass(slots=True)
class Turn:
    """roots by position (index of the root in the ids); last: index of the text's last id."""

    sequence: int
    roots: dict[int, Root] = field(default_factory=dict)
    last: int = 0

    @property
    def has_choice(self) -> bool:
        """Whether it may draft anywhere."""
        return any(root.max_nodes > 0 for root in self.roots.values())

    @property
    def first(self) -> int:
        return min(self.roots)

    def next_root(self, position: int) -> int:
        """The first logged root behind `position`; `last` where there is none."""
        for behind in range(position + 1, self.last):
            if behind in self.roots:
                return behind
        return self.last
