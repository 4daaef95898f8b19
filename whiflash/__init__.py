"""WhiFlash: serves a language model faster without changing its text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "Engine": "whiflash.engine.engine",
    "EngineConfig": "whiflash.config",
    "SamplingParams": "whiflash.core.params",
    "GenerationRequest": "whiflash.core.params",
    "Completion": "whiflash.core.results",
    "Delta": "whiflash.core.results",
    "ChatFormat": "whiflash.chat.format",
}

if TYPE_CHECKING:
    from whiflash.chat.format import ChatFormat
    from whiflash.config import EngineConfig
    from whiflash.core.params import GenerationRequest, SamplingParams
    from whiflash.core.results import Completion, Delta
    from whiflash.engine.engine import Engine

__all__ = [
    "ChatFormat",
    "Completion",
    "Delta",
    "Engine",
    "EngineConfig",
    "GenerationRequest",
    "SamplingParams",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Loads the heavy parts (torch, transformers) only when they are used."""
    if name not in _LAZY:
        raise AttributeError(f"module 'whiflash' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
