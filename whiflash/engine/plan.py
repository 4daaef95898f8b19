"""The resolved plan: what was decided at start and what was measured, for people and programs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whiflash import __version__
from whiflash.core.protocols import Drafter, TapDrafter
from whiflash.core.rows import NONE
from whiflash.models.shipped import shipped_drafters, shipped_router
from whiflash.models.sources import cache_folder

if TYPE_CHECKING:
    from whiflash.engine.build import EngineParts


def describe(parts: EngineParts) -> dict[str, Any]:
    """JSON-able. Live values (price, shares, counters) are a snapshot."""
    core, config = parts.core, parts.config
    return {
        "version": __version__,
        "model": config.model,
        "model_folder": str(parts.folder),
        "cache_folder": str(cache_folder()),
        "target": dataclasses.asdict(parts.target.info),
        "verify_curve_ms": {str(n): round(ms, 3) for n, ms in parts.target.verify_curve.points},
        "arms": [NONE, *parts.drafters],
        "drafters": {name: _drafter(drafter) for name, drafter in parts.drafters.items()},
        "shipped_drafters": [
            shipped.record() for shipped in shipped_drafters(parts.target.info.fingerprint)
        ],
        "shipped_router": _path(shipped_router(parts.target.info.fingerprint)),
        "policy": config.policy,
        "store": parts.store.describe(),
        "memory": dataclasses.asdict(parts.budget),
        "limits": dataclasses.asdict(parts.limits),
        "tokenizer_fingerprint": parts.tokenizer.fingerprint,
        "routing": parts.router.snapshot(),
        "counters": core.counters.describe(),
        "prefix_hits": core.admission.num_prefix_hits,
        "draft_memory": core.arms.memory.describe(),
    }


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _drafter(drafter: Drafter) -> dict[str, Any]:
    """What was resolved of a drafter; nothing for one that reads no taps."""
    if not isinstance(drafter, TapDrafter):
        return {}
    return {
        "boundaries": list(drafter.boundaries),
        "weight_hash": drafter.weight_hash,
        "context_limit": drafter.context_limit,
        "notes": list(drafter.notes),
    }
