"""What an arm's drafts look like, whatever the text: known before it drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from whiflash.core.protocols import Drafter

CHAIN = "chain"


@dataclass(frozen=True, slots=True)
class DraftShape:
    """tree: "chain", or the name of how its trees grow; max_nodes: of its longest draft. Survival
    by rank of one kind of tree says nothing of another's."""

    tree: str
    max_nodes: int


@runtime_checkable
class ShapedDrafter(Protocol):
    """A drafter that knows."""

    @property
    def draft_shape(self) -> DraftShape: ...


def shapes_of(drafters: Mapping[str, Drafter]) -> dict[str, DraftShape]:
    """By arm; those that do not know (retrieval drafts what it finds, a drafter elsewhere does not
    say) are left out."""
    return {arm: drafter.draft_shape for arm, drafter in drafters.items()
            if isinstance(drafter, ShapedDrafter)}  # fmt: skip
