"""EAGLE-3: an autoregressive head on the target's residual stream (arXiv 2503.01840)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whiflash.drafters.eagle3.drafter import Eagle3Drafter
from whiflash.drafters.eagle3.load import load
from whiflash.drafters.eagle3.options import Eagle3Options

if TYPE_CHECKING:
    from whiflash.drafters.registry import DrafterParts
    from whiflash.drafters.spec import DrafterSpec

__all__ = ["Eagle3Drafter", "Eagle3Options", "build", "load"]


def build(spec: DrafterSpec, parts: DrafterParts) -> Eagle3Drafter:
    """The drafter that "eagle3:FOLDER,options" names. Raises ConfigError, ModelError."""
    return load(parts.folder(spec), parts.target, Eagle3Options.of_spec(spec))
