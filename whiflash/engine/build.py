"""Builds an engine's parts from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whiflash.config import EngineConfig
from whiflash.core.protocols import Drafter, TapDrafter, Target
from whiflash.drafters.registry import DrafterParts, make_drafters, parse_specs
from whiflash.engine.core import EngineCore, EngineLimits
from whiflash.engine.publish import Publisher
from whiflash.models.draft.target_parts import TargetParts
from whiflash.models.sources import resolve_drafter
from whiflash.models.tokenizer import HFTokenizer
from whiflash.obs.round_log import RoundLog
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import check_policy, policy_of
from whiflash.routing.router import Router
from whiflash.routing.setting import PolicySetting, check_setting
from whiflash.target.load import LoadedTarget, load_target
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
    specs = parse_specs(config.arms)
    check_policy(config.policy)
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
    drafters = make_drafters(specs, _drafter_parts(loaded, indexes))
    for drafter in drafters.values():
        if isinstance(drafter, TapDrafter):
            loaded.target.keep_taps(drafter.weight_hash, drafter.boundaries, drafter.fuse)
    costs = CostModel(loaded.target.verify_curve)
    policy = policy_of(config.policy, costs)
    info = loaded.target.info
    setting = PolicySetting(tuple(drafters), info.hidden_size, info.fingerprint)
    check_setting(policy, setting)
    router = Router(policy, costs, plain_share=config.plain_share)
    limits = EngineLimits(
        memory_bytes=memory_bytes - index_bytes,
        max_batch=config.max_batch,
        max_queue=config.max_queue,
        prefill_chunk=config.prefill_chunk,
        max_draft_nodes=config.max_draft_nodes,
        max_draft_depth=config.max_draft_depth,
        draft_window=config.draft_window,
    )
    rounds = RoundLog(config.round_log) if config.round_log is not None else None
    publisher = Publisher(info.fingerprint, log if drafters else None, rounds)
    publisher.begin_log(loaded.target.verify_curve, drafters)
    core = EngineCore(loaded.target, loaded.tokenizer, drafters, router, publisher, limits)
    return EngineParts(
        config, loaded.path, loaded.target, loaded.tokenizer, drafters, router, limits, core,
        indexes, publisher,
    )  # fmt: skip


def _drafter_parts(loaded: LoadedTarget, indexes: TrajectoryIndexes) -> DrafterParts:
    info = loaded.target.info
    target = TargetParts.of_model(
        loaded.target.runner.model, info.context_limit, loaded.tokenizer.fingerprint
    )
    return DrafterParts(indexes, target, resolve_drafter)
