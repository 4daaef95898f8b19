"""DDTree: DFlash's blocks, drafted as a tree of the most probable prefixes (arXiv 2604.12989)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whiflash.drafters.ddtree.drafter import DDTreeDrafter
from whiflash.drafters.ddtree.options import DDTreeOptions
from whiflash.drafters.dflash.load import load

if TYPE_CHECKING:
    from whiflash.drafters.registry import DrafterParts
    from whiflash.drafters.spec import DrafterSpec

__all__ = ["DDTreeDrafter", "DDTreeOptions", "build"]


def build(spec: DrafterSpec, parts: DrafterParts) -> DDTreeDrafter:
    """The drafter that "ddtree:FOLDER,options" names. Raises ConfigError, ModelError."""
    options = DDTreeOptions.of_spec(spec)
    return DDTreeDrafter(load(parts.folder(spec), parts.target, options.block), options.nodes)
