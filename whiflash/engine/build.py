"""Builds an engine's parts from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whiflash.config import EngineConfig
from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Drafter, Target
from whiflash.core.rows import NONE
from whiflash.drafters.registry import DRAFTERS, make_drafters
from whiflash.engine.core import EngineCore, EngineLimits
from whiflash.engine.publish import Publisher
from whiflash.models.tokenizer import HFTokenizer
from whiflash.obs.round_log import RoundLog
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import POLICIES, make_policy
from whiflash.routing.router import Router
from whiflash.target.load import load_target
from whiflash.target.memory import available_bytes
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.memory_log import MemoryLog

INDEX_SHARE = 0.125
"""Part of the memory budget that trajectory indexes may use; the rest is for KV caches."""


@dataclass(slots=True)
class EngineParts:
    """All that an Engine holds."""

    config: EngineConfig
    folder: Path
    target: Target
    tokenizer: HFTokenizer
    drafters: Mapping[str, Drafter]
    router: Router
    limits: EngineLimits
    core: EngineCore
    indexes: TrajectoryIndexes
    publisher: Publisher

    def close(self) -> None:
        """After the loop has ended: flushes logs and stops their threads."""
        self.publisher.close()
        self.indexes.close()


def build_parts(config: EngineConfig) -> EngineParts:
    """Loads the model, measures what has to be measured, wires everything up.

    Raises ConfigError, ModelError or UnsupportedModelError.
    """
    _check_names(config)
    loaded = load_target(
        config.model,
        dtype=config.dtype,
        device=config.device,
        context_limit=config.context_limit,
    )
    memory_bytes = config.memory or available_bytes(config.device) // 2
    index_bytes = int(memory_bytes * INDEX_SHARE)
    log = MemoryLog()
    indexes = TrajectoryIndexes(log, index_bytes)
    drafters = make_drafters(config.arms, indexes)
    costs = CostModel(loaded.target.verify_curve)
    router = Router(make_policy(config.policy, costs), costs, plain_share=config.plain_share)
    limits = EngineLimits(
        memory_bytes=memory_bytes - index_bytes,
        max_batch=config.max_batch,
        max_queue=config.max_queue,
        prefill_chunk=config.prefill_chunk,
        max_draft_nodes=config.max_draft_nodes,
        max_draft_depth=config.max_draft_depth,
    )
    rounds = RoundLog(config.round_log) if config.round_log is not None else None
    publisher = Publisher(loaded.target.info.fingerprint, log if drafters else None, rounds)
    core = EngineCore(loaded.target, loaded.tokenizer, drafters, router, publisher, limits)
    return EngineParts(
        config, loaded.path, loaded.target, loaded.tokenizer, drafters, router, limits, core,
        indexes, publisher,
    )  # fmt: skip


def _check_names(config: EngineConfig) -> None:
    """Before any weight is read."""
    for arm in config.arms:
        if arm not in DRAFTERS.names:
            valid = ", ".join((NONE, *DRAFTERS.names))
            raise ConfigError(f"unknown drafter {arm!r}; use one of: {valid}")
    if config.policy not in POLICIES:
        raise ConfigError(
            f"unknown policy {config.policy!r}; use one of: {', '.join(sorted(POLICIES))}"
        )
