"""DFlash: block diffusion drafts. One pass fills a block of masks (arXiv 2602.06036)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whiflash.drafters.dflash.drafter import DFlashDrafter
from whiflash.drafters.dflash.load import load
from whiflash.drafters.dflash.options import DFlashOptions

if TYPE_CHECKING:
    from whiflash.drafters.registry import DrafterParts
    from whiflash.drafters.spec import DrafterSpec

__all__ = ["DFlashDrafter", "DFlashOptions", "build", "load"]


def build(spec: DrafterSpec, parts: DrafterParts) -> DFlashDrafter:
    """The drafter that "dflash:FOLDER,options" names. Raises ConfigError, ModelError."""
    return DFlashDrafter(load(parts.folder(spec), parts.target, DFlashOptions.of_spec(spec)))
