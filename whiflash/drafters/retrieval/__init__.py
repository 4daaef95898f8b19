"""Drafts from what was written before: in this request, in its prediction, in earlier runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whiflash.core.errors import ConfigError
from whiflash.drafters.retrieval.drafter import RetrievalDrafter

if TYPE_CHECKING:
    from whiflash.drafters.registry import DrafterParts
    from whiflash.drafters.spec import DrafterSpec

__all__ = ["RetrievalDrafter", "build"]


def build(spec: DrafterSpec, parts: DrafterParts) -> RetrievalDrafter:
    """The registry's factory. Raises ConfigError on options, of which there are none."""
    if spec.place or spec.options:
        raise ConfigError("drafter retrieval takes no folder and no options; write retrieval alone")
    return RetrievalDrafter(parts.indexes)
