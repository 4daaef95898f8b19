"""Drafts from what was written before: in this request, in its prediction, in earlier runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whiflash.drafters.retrieval.drafter import RetrievalDrafter

if TYPE_CHECKING:
    from whiflash.drafters.registry import DrafterParts

__all__ = ["RetrievalDrafter", "build"]


def build(parts: DrafterParts) -> RetrievalDrafter:
    """The registry's factory."""
    return RetrievalDrafter(parts.indexes)
