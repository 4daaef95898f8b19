"""How much memory KV caches, drafters and indexes share when nobody says."""

from __future__ import annotations

from dataclasses import dataclass

from whiflash.config import EngineConfig
from whiflash.core.protocols import Target
from whiflash.target.memory import available_bytes

INDEX_SHARE = 0.125
"""Part of the memory budget that trajectory indexes may use."""
DRAFT_SHARE = 0.125
"""Part of the rest that the K/V of neural drafters may use; what is left is for KV caches. At a
target of 36 layers a position costs EAGLE-3 one layer's K/V and DFlash five's (3 and 14 %)."""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """num_bytes: in all; chosen_by: what made it so much, for the plan."""

    num_bytes: int
    chosen_by: str

    @property
    def index_bytes(self) -> int:
        """Of it, for the live tiers of the trajectory indexes."""
        return int(self.num_bytes * INDEX_SHARE)


def memory_budget(config: EngineConfig, target: Target) -> MemoryBudget:
    """What the caller asks for; else half of what is free, but no more than a full batch of the
    longest contexts can use."""
    if config.memory:
        return MemoryBudget(config.memory, "memory, as asked for")
    longest = target.cache_bytes(target.info.context_limit + config.max_draft_nodes)
    useful = int(config.max_batch * longest / (1 - INDEX_SHARE) / (1 - DRAFT_SHARE)) + 1
    half = available_bytes(config.device) // 2
    if useful < half:
        return MemoryBudget(
            useful,
            f"{config.max_batch} sequences of {target.info.context_limit} tokens; more than half "
            "of the memory is free",
        )
    return MemoryBudget(half, "half of the free memory")
