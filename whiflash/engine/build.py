"""Builds an engine's parts from its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from whiflash.config import EngineConfig
from whiflash.core.protocols import Drafter, TapDrafter, Target
from whiflash.core.shape import shapes_of
from whiflash.drafters.registry import DRAFTERS, DrafterParts, make_drafters, parse_specs
from whiflash.drafters.spec import DrafterSpec
from whiflash.engine.budget import DRAFT_SHARE, MemoryBudget, memory_budget
from whiflash.engine.core import EngineCore, EngineLimits
from whiflash.engine.outside import OutsideParts
from whiflash.engine.publish import Publisher
from whiflash.engine.store import EngineStore, open_store
from whiflash.models.draft.target_parts import TargetParts
from whiflash.models.shipped import shipped_folders
from whiflash.models.sources import resolve_drafter
from whiflash.models.tokenizer import HFTokenizer
from whiflash.obs.round_log import RoundLog
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import check_policy, policy_of
from whiflash.routing.router import Router
from whiflash.routing.setting import PolicySetting, check_setting
from whiflash.sampling import entropy
from whiflash.target.load import LoadedTarget, load_target
from whiflash.trajectories.index import TrajectoryIndexes


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
    store: EngineStore
    publisher: Publisher
    budget: MemoryBudget
    outside: OutsideParts | None = None

    def close(self) -> None:
        """After the loop has ended: flushes logs and stops their threads."""
        if self.outside is not None:
            self.outside.close()
        self.publisher.close()
        self.store.close()


def build_parts(config: EngineConfig, outside: OutsideParts | None = None) -> EngineParts:
    """Opens the store, loads the model, measures what has to be measured, wires everything up.
    `outside` has the drafters and the policy that run in other processes; it is closed with the
    parts.

    Raises ConfigError, ModelError or UnsupportedModelError.
    """
    specs = parse_specs(config.arms)
    check_policy(config.policy)
    with ExitStack() as undo:
        opened = undo.enter_context(closing(open_store(config)))
        loaded = load_target(
            config.model,
            dtype=config.dtype,
            device=config.device,
            context_limit=config.context_limit,
        )
        budget = memory_budget(config, loaded.target)
        store = EngineStore(opened, loaded.tokenizer, budget.index_bytes)
        undo.callback(store.close)
        parts = _wire(config, specs, loaded, store, budget, outside)
        undo.pop_all()
    return parts


def _wire(
    config: EngineConfig,
    specs: Sequence[DrafterSpec],
    loaded: LoadedTarget,
    store: EngineStore,
    budget: MemoryBudget,
    outside: OutsideParts | None,
) -> EngineParts:
    drafters = _drafters(specs, loaded, store.indexes, outside)
    tap_drafters = [d for d in drafters.values() if isinstance(d, TapDrafter)]
    for drafter in [drafter for drafter in tap_drafters if drafter.weight_hash]:
        loaded.target.keep_taps(drafter.weight_hash, drafter.boundaries, drafter.fuse)
    entropy.warm_up()
    costs = CostModel(loaded.target.verify_curve)
    info = loaded.target.info
    curve = loaded.target.verify_curve
    remote = None if outside is None else outside.policy(config.policy, curve, info.fingerprint)
    policy = remote or policy_of(config.policy, costs)
    setting = PolicySetting(
        tuple(drafters), info.hidden_size, info.fingerprint, shapes=shapes_of(drafters)
    )
    check_setting(policy, setting)
    # A log of rounds is read to weigh other policies: it wants every root.
    has_all_roots = config.round_log is not None
    router = Router(policy, costs, plain_share=config.plain_share, may_rest=not has_all_roots)
    memory_bytes = budget.num_bytes - budget.index_bytes
    draft_bytes = int(memory_bytes * DRAFT_SHARE) if tap_drafters else 0
    limits = EngineLimits(
        memory_bytes=memory_bytes - draft_bytes,
        max_batch=config.max_batch,
        max_queue=config.max_queue,
        prefill_chunk=config.prefill_chunk,
        max_draft_nodes=config.max_draft_nodes,
        max_draft_depth=config.max_draft_depth,
        draft_window=config.draft_window,
        draft_bytes=draft_bytes,
        hold_ms=None if outside is None else outside.hold_ms,
    )
    rounds = RoundLog(config.round_log) if config.round_log is not None else None
    log = store.log if drafters or store.is_durable else None
    publisher = Publisher(info.fingerprint, log, rounds, loaded.tokenizer.fingerprint)
    publisher.begin_log(loaded.target.verify_curve, drafters)
    core = EngineCore(loaded.target, loaded.tokenizer, drafters, router, publisher, limits)
    return EngineParts(
        config, loaded.path, loaded.target, loaded.tokenizer, drafters, router, limits, core,
        store, publisher, budget, outside,
    )  # fmt: skip


def _drafters(
    specs: Sequence[DrafterSpec],
    loaded: LoadedTarget,
    indexes: TrajectoryIndexes,
    outside: OutsideParts | None,
) -> dict[str, Drafter]:
    """By arm, in the order of the configuration; those that run elsewhere as their stand-ins."""
    parts = _drafter_parts(loaded, indexes)
    if outside is None:
        return make_drafters(specs, parts)
    drafters: dict[str, Drafter] = {}
    model, tokenizer = loaded.target.info.fingerprint, loaded.tokenizer.fingerprint
    for spec in specs:
        remote = outside.drafter(spec, model, tokenizer)
        drafters[spec.kind] = remote or DRAFTERS.build(spec, parts)
    return drafters


def _drafter_parts(loaded: LoadedTarget, indexes: TrajectoryIndexes) -> DrafterParts:
    info = loaded.target.info
    target = TargetParts.of_model(
        loaded.target.runner.model, info.context_limit, loaded.tokenizer.fingerprint
    )
    shipped = shipped_folders(info.fingerprint)
    return DrafterParts(indexes, target, resolve_drafter, shipped)
