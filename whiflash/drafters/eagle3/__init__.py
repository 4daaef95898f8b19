"""EAGLE-3: an autoregressive head on the target's residual stream."""

from __future__ import annotations

from whiflash.drafters.eagle3.drafter import Eagle3Drafter
from whiflash.drafters.eagle3.load import load
from whiflash.drafters.eagle3.options import Eagle3Options

__all__ = ["Eagle3Drafter", "Eagle3Options", "load"]
