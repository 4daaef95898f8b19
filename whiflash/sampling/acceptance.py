"""Acceptance under the drafter-invariant rule: follow the target's own tokens down the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whiflash.core.draft import DraftTree
from whiflash.core.errors import WhiFlashError

Choose = Callable[[int, Sequence[int]], int]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a verified draft came to.

    rows:   scratch rows to commit: the root's row 0, then the accepted nodes' rows.
    tokens: tokens emitted, one per row: tokens[i] is the target's token at rows[i]. The last one
            is the new root.
    """

    rows: tuple[int, ...]
    tokens: tuple[int, ...]

    @property
    def accepted(self) -> int:
        """Accepted draft nodes."""
        return len(self.rows) - 1


def walk(tree: DraftTree, choose: Choose) -> Acceptance:
    """Descends from the root as long as a child holds the target's token.

    `choose(row, path)` gives the target's token at a row, `path` the accepted tokens above it;
    it is called for the rows of the accepted path only, in order, once each. Since it never sees
    the draft, the emitted tokens do not depend on the tree, only their number does.
    What `choose` raises at the root is raised. Where it raises a WhiFlashError further down, the
    walk ends above that row: the turn may end before it, or else it is a root and raises again.
    """
    children = tree.children()
    rows, tokens = [0], [choose(0, ())]
    while (row := children[rows[-1]].get(tokens[-1])) is not None:
        try:
            token = choose(row, tuple(tokens))
        except WhiFlashError:
            break
        rows.append(row)
        tokens.append(token)
    return Acceptance(tuple(rows), tuple(tokens))
