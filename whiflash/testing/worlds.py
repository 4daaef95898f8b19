"""Random engines for the exactness gate: drafters, policy, sizes and requests from one seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing

from whiflash.core.protocols import Drafter, Target, Tokenizer
from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.engine.core import EngineCore, EngineLimits
from whiflash.engine.publish import Publisher
from whiflash.routing.costs import CostModel
from whiflash.routing.router import Router
from whiflash.testing.cast import RETRIEVAL, SCRIPTED, scripted_drafter
from whiflash.testing.constrained import (
    CONSTRAINED_SHARE,
    maybe_constrained,
    maybe_resumed,
    require_valid,
)
from whiflash.testing.exactness import require_same_text, run_planned
from whiflash.testing.fragile import make_fragile
from whiflash.testing.leaving import let_leave
from whiflash.testing.policies import random_policy
from whiflash.testing.pressure import crowd, next_turns, scarce_memory
from whiflash.testing.requests import Planned, RandomRequests
from whiflash.testing.tally import Tally
from whiflash.testing.toy_drafters import BLOCK, NEURAL, ToyDrafters
from whiflash.testing.truth import Truth
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.memory_log import MemoryLog

NUM_REQUESTS = 8
STOP_WORDS = ("e", "ab", "th", "q.", "zz")


def run_scenario(
    seed: int,
    target: Target,
    tokenizer: Tokenizer,
    tally: Tally,
    toys: ToyDrafters,
    constrained_share: float = CONSTRAINED_SHARE,
) -> None:
    """One random engine and its random requests; every text must equal the plain loop's, and have
    the form that was asked for."""
    rng = random.Random(seed)
    truth = Truth(target, tokenizer)
    planned = _plan(rng, target, tokenizer, truth, constrained_share)
    log = MemoryLog()
    with closing(TrajectoryIndexes(log, 8 << 20)) as indexes:
        drafters = _drafters(rng, target, truth, planned, indexes, toys)
        router = _router(rng, target, drafters, toys)
        core = _core(rng, target, tokenizer, drafters, router, planned, log)
        completions = run_planned(core, planned, check_every=1 if constrained_share == 1 else 7)
        tally.add(core, router.policy.name)
        for plan, done, answers in zip(planned, completions, truth.answers, strict=True):
            require_same_text(plan, done, answers)
            is_valid = [
                require_valid(plan, answer, tokenizer, target.info.eos_ids[0]) for answer in answers
            ]
            tally.add_request(plan, answers, sum(is_valid))
        core.close()
        _require_empty(core)


def _plan(
    rng: random.Random,
    target: Target,
    tokenizer: Tokenizer,
    truth: Truth,
    constrained_share: float,
) -> list[Planned]:
    """Requests whose plain answers are in `truth` then: some held to a grammar, some resumed from a
    part of their answer, some the next turns of others."""
    info = target.info
    prompts = [tuple(rng.randrange(3, info.vocab_size) for _ in range(40)) for _ in range(3)]
    requests = RandomRequests(rng, prompts, info.vocab_size, list(STOP_WORDS))
    planned = [
        maybe_constrained(requests.draw(), rng, tokenizer, info, constrained_share)
        for _ in range(NUM_REQUESTS)
    ]
    planned += crowd(rng, info.vocab_size)
    truth.extend(planned)
    for number, plan in enumerate(planned):
        resumed = maybe_resumed(plan, rng, truth.answers[number])
        if resumed is not None:
            planned[number] = resumed
            truth.resume(number, resumed)
    later = next_turns(planned, truth.answers, rng, info.vocab_size, info.context_limit)
    truth.extend(later)
    return planned + later


def _drafters(
    rng: random.Random,
    target: Target,
    truth: Truth,
    planned: list[Planned],
    indexes: TrajectoryIndexes,
    toys: ToyDrafters,
) -> dict[str, Drafter]:
    """Retrieval, up to two neural ones, some of which fail now and then, and scripted ones."""
    drafters: dict[str, Drafter] = {RETRIEVAL: RetrievalDrafter(indexes)}
    num_neural = rng.choice([0, 1, 2, 2])
    pool = NEURAL if rng.random() < 0.7 else BLOCK  # switches between the two are rare without it
    for name in rng.sample(pool, num_neural):
        neural = drafters[name] = toys.make(name)
        if rng.random() < 0.2:
            make_fragile(neural, random.Random(rng.getrandbits(32)))
    scripted = rng.sample(SCRIPTED, rng.randint(1, 3 - num_neural))
    if rng.random() < 0.4:
        scripted[-1] = "half_true"  # deep rejections are rare without it
    for name in scripted:
        drafters[name] = scripted_drafter(name, rng, target, truth)
    if rng.random() < 0.3:
        for drafter in drafters.values():
            let_leave(drafter, planned, random.Random(rng.getrandbits(32)))
    return drafters


def _router(
    rng: random.Random, target: Target, drafters: dict[str, Drafter], toys: ToyDrafters
) -> Router:
    costs = CostModel(target.verify_curve)
    policy = random_policy(rng, costs, tuple(drafters), target.info, toys.folder)
    return Router(policy, costs, plain_share=rng.choice([0.0, 0.01, 0.2]))


def _core(
    rng: random.Random,
    target: Target,
    tokenizer: Tokenizer,
    drafters: dict[str, Drafter],
    router: Router,
    planned: Sequence[Planned],
    log: MemoryLog,
) -> EngineCore:
    nodes = rng.choice([1, 4, 16, 16])
    limits = EngineLimits(
        memory_bytes=scarce_memory(rng, target, planned, nodes),
        max_batch=rng.choice([1, 3, 8]),
        max_queue=64,
        prefill_chunk=rng.choice([1, 5, 16, 64]),
        max_draft_nodes=nodes,
        max_draft_depth=rng.choice([1, 3, 8, 8]),
        draft_window=rng.choice([16, 64, 1024]),
        draft_bytes=rng.choice([50_000, 150_000, 64 << 20]),
        shadow_share=rng.choice([0.0, 0.0, 1.0]),
    )
    publisher = Publisher("toy", log, None)
    return EngineCore(target, tokenizer, drafters, router, publisher, limits)


def _require_empty(core: EngineCore) -> None:
    """After the drain and the close nothing is held for anybody (sglang-jax #1147)."""
    assert core.admission.prefixes.num_bytes == 0
    assert core.arms.memory.held_bytes == 0
    assert all(drafter.num_bytes == 0 for drafter in core.arms.tap_drafters.values())
