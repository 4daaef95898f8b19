"""Random engines for the exactness gate: drafters, policy, sizes and requests from one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Drafter, Policy, Target, Tokenizer
from whiflash.core.results import FinishReason
from whiflash.core.rows import NONE, DraftRow, Outcome, Prediction, RouteRow
from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.engine.core import EngineCore, EngineLimits
from whiflash.engine.publish import Publisher
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import make_policy
from whiflash.routing.router import Router
from whiflash.testing.constrained import (
    CONSTRAINED_SHARE,
    maybe_constrained,
    maybe_resumed,
    require_valid,
)
from whiflash.testing.drafters import OracleDrafter, RandomDrafter, WrongDrafter
from whiflash.testing.exactness import (
    PlainAnswer,
    Planned,
    RandomRequests,
    plain_answer,
    require_same_text,
    run_planned,
)
from whiflash.testing.hostile import HostileDrafter
from whiflash.testing.toy_drafters import NEURAL, ToyDrafters
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.memory_log import MemoryLog

SCRIPTED = ("oracle", "oracle_tree", "half_true", "wrong", "random", "random_chain", "hostile")
RETRIEVAL = "retrieval"
NUM_REQUESTS = 8
STOP_WORDS = ("e", "ab", "th", "q.", "zz")


_ALL_SWITCHES = [
    f"{a}>{b}" for a, b in permutations((NONE, RETRIEVAL, "autoregressive", "block"), 2)
] + ["block>block", "autoregressive>autoregressive"]


def _kinds_of_switches(switched: Counter[str]) -> Counter[str]:
    """Switches between paradigms; scripted drafters are left out."""
    found: Counter[str] = Counter()
    for way, count in switched.items():
        kinds = [_paradigm(arm) for arm in way.split(">")]
        if None not in kinds:
            found[f"{kinds[0]}>{kinds[1]}"] += count
    return found


def _paradigm(arm: str) -> str | None:
    if arm in (NONE, RETRIEVAL):
        return arm
    if arm in NEURAL:
        return "block" if arm in ("dflash", "ddtree") else "autoregressive"
    return None


class RandomPolicy:
    """Picks an arm and a budget per row at random: every mix of arms in one forward."""

    name = "random"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        return [
            Prediction(fixed=(self._rng.choice(row.arms), self._rng.randint(0, row.max_nodes)))
            for row in rows
        ]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learns nothing."""


class LeavingDrafter(RandomDrafter):
    """Drafts at random; while it does, callers leave."""

    def __init__(self, vocab_size: int, rng: random.Random) -> None:
        super().__init__(vocab_size, seed=rng.getrandbits(32))
        self._rng = rng
        self.planned: list[Planned] = []

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = super().propose(rows)
        for plan in self.planned:
            if plan.cancels_mid_draft and plan.ticket is not None and self._rng.random() < 0.3:
                plan.ticket.cancel()
        return trees


class HalfTrueDrafter(OracleDrafter):
    """The truth down to a random depth, then a wrong id: rejections at every depth."""

    def __init__(self, truth: Truth, vocab_size: int, rng: random.Random) -> None:
        super().__init__(truth.continuation, vocab_size, max_tokens=16, name="half_true")
        self._rng = rng

    def draft(self, row: DraftRow) -> DraftTree:
        tree = super().draft(row)
        if len(tree) == 0:
            return tree
        tokens = tree.tokens.copy()
        last = len(tokens) - 1
        place = last if self._rng.random() < 0.4 else self._rng.randrange(len(tokens))
        tokens[place] = (tokens[place] + 1) % self._vocab_size
        return DraftTree.chain(tokens, source=self.name)


@dataclass(slots=True)
class Tally:
    """What the scenarios so far have covered."""

    scenarios: int = 0
    choices: int = 0
    rounds: int = 0
    covered: Counter[str] = field(default_factory=Counter)
    rejected_at: Counter[int] = field(default_factory=Counter)
    arm_rounds: Counter[str] = field(default_factory=Counter)
    switched: Counter[str] = field(default_factory=Counter)

    def add(self, core: EngineCore, num_choices: int) -> None:
        counters = core.counters
        self.scenarios += 1
        self.choices += num_choices
        self.rounds += counters.rounds
        self.rejected_at.update(counters.rejected_at)
        self.arm_rounds.update(counters.arm_rounds)
        self.switched.update(_kinds_of_switches(counters.switched))
        self.covered.update(
            prefix_hits=core.admission.num_prefix_hits,
            trees=counters.tree_rounds,
            mixed_drafts=counters.mixed_steps,
            mixed_prefill=counters.mixed_prefill_steps,
            cancelled_mid_draft=counters.cancelled_mid_draft,
            invalid_nodes=core.drafting.num_invalid_nodes,
            drafter_failures=core.arms.num_failures,
            mixed_arms=counters.mixed_arm_steps,
            window_starts=core.drafting.catch_ups.num_window_starts,
            inherited_drafts=counters.inherited_drafts,
            constrained_rounds=counters.constrained_rounds,
            masked_nodes=core.drafting.num_masked_nodes,
        )

    def add_requests(self, planned: Sequence[Planned], truth: Truth) -> None:
        """What was asked, and how it ended."""
        for plan, answers in zip(planned, truth.answers, strict=True):
            reasons = [answer.finish_reason for answer in answers]
            is_held = plan.grammar is not None
            self.covered.update(
                resumed=bool(plan.request.forced_ids),
                resumed_in_grammar=is_held and bool(plan.request.forced_ids),
                whole_in_grammar=is_held * reasons.count(FinishReason.STOP),
                cut_in_grammar=is_held * reasons.count(FinishReason.LENGTH),
                nothing_allowed=reasons.count(FinishReason.ERROR),
            )

    def missing(self, max_depth: int) -> list[str]:
        """What never happened so far."""
        missing = [name for name, count in self.covered.items() if count == 0]
        missing += [f"rejection at depth {d}" for d in range(1, max_depth + 1)
                    if self.rejected_at[d] == 0]  # fmt: skip
        missing += [f"rounds of {arm}" for arm in (NONE, RETRIEVAL, *SCRIPTED, *NEURAL)
                    if self.arm_rounds[arm] == 0]  # fmt: skip
        missing += [f"switch {way}" for way in _ALL_SWITCHES if self.switched[way] == 0]
        return missing

    def require_coverage(self, max_depth: int) -> None:
        """Raises AssertionError naming what never happened."""
        missing = self.missing(max_depth)
        assert not missing, f"the scenarios never covered: {', '.join(missing)}"

    def lines(self) -> list[str]:
        """For a person."""
        return [
            f"{self.scenarios} scenarios, {self.choices} choices, {self.rounds} sequence-rounds",
            ", ".join(f"{name} {count}" for name, count in sorted(self.covered.items())),
            "rejected at depth: "
            + ", ".join(f"{depth}: {count}" for depth, count in sorted(self.rejected_at.items())),
            "switched: " + ", ".join(f"{way} {n}" for way, n in sorted(self.switched.items())),
            "rounds: " + ", ".join(f"{arm} {n}" for arm, n in sorted(self.arm_rounds.items())),
        ]


class Truth:
    """The plain answers of the planned requests, for the comparison and for the oracles."""

    def __init__(self, target: Target, tokenizer: Tokenizer, planned: Sequence[Planned]) -> None:
        self._target, self._tokenizer = target, tokenizer
        self.answers: list[list[PlainAnswer]] = [
            [plain_answer(target, tokenizer, plan.request, index, plan.seed, plan.grammar)
             for index in range(plan.request.params.n)]
            for plan in planned
        ]  # fmt: skip
        self._texts = [
            [*plan.request.prompt_ids, *answer.token_ids]
            for plan, answers in zip(planned, self.answers, strict=True)
            for answer in answers
        ]

    def resume(self, number: int, plan: Planned) -> None:
        """Request `number` is asked as `plan` now. Raises AssertionError where that makes the
        plain loop contradict what it said before."""
        (whole,) = self.answers[number]
        rest = plain_answer(self._target, self._tokenizer, plan.request, 0, plan.seed, plan.grammar)
        assert rest.token_ids == whole.token_ids, (plan, rest, whole)
        assert rest.finish_reason is whole.finish_reason, (plan, rest, whole)
        self.answers[number] = [rest]

    def continuation(self, context: Sequence[int], count: int) -> Sequence[int]:
        """The next ids of a text that begins with `context`. Where two requests share it, it may
        be the other's, which is a wrong draft and as good a test."""
        known = list(context)
        for text in self._texts:
            if text[: len(known)] == known:
                return text[len(known) : len(known) + count]
        return []


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
    vocab = target.info.vocab_size
    prompts = [tuple(rng.randrange(3, vocab) for _ in range(40)) for _ in range(3)]
    requests = RandomRequests(rng, prompts, vocab, list(STOP_WORDS))
    planned = [
        maybe_constrained(requests.draw(), rng, tokenizer, target.info, constrained_share)
        for _ in range(NUM_REQUESTS)
    ]
    planned, truth = _with_resumed(planned, rng, Truth(target, tokenizer, planned))
    log = MemoryLog()
    indexes = TrajectoryIndexes(log, 8 << 20)
    try:
        core = _random_core(rng, target, tokenizer, truth, planned, log, indexes, toys)
        completions = run_planned(core, planned, check_every=1 if constrained_share == 1 else 7)
        compared = [
            require_same_text(plan, done, answers)
            for plan, done, answers in zip(planned, completions, truth.answers, strict=True)
        ]
        tally.add(core, sum(compared))
        tally.add_requests(planned, truth)
        for plan, answers in zip(planned, truth.answers, strict=True):
            for answer in answers:
                tally.covered["valid_in_grammar"] += require_valid(
                    plan, answer, tokenizer, target.info.eos_ids[0]
                )
        core.close()
    finally:
        indexes.close()


def _with_resumed(
    planned: list[Planned], rng: random.Random, truth: Truth
) -> tuple[list[Planned], Truth]:
    """Some requests continue from a part of their answer; the whole must stay what it was."""
    for number, plan in enumerate(planned):
        resumed = maybe_resumed(plan, rng, truth.answers[number])
        if resumed is not None:
            planned[number] = resumed
            truth.resume(number, resumed)
    return planned, truth


def _random_core(
    rng: random.Random,
    target: Target,
    tokenizer: Tokenizer,
    truth: Truth,
    planned: list[Planned],
    log: MemoryLog,
    indexes: TrajectoryIndexes,
    toys: ToyDrafters,
) -> EngineCore:
    drafters: dict[str, Drafter] = {RETRIEVAL: RetrievalDrafter(indexes)}
    num_neural = rng.choice([0, 1, 2, 2])
    for name in rng.sample(NEURAL, num_neural):
        drafters[name] = toys.make(name)
    scripted = rng.sample(SCRIPTED, rng.randint(1, 3 - num_neural))
    if rng.random() < 0.4:
        scripted[-1] = "half_true"  # deep rejections are rare without it
    for name in scripted:
        drafters[name] = _scripted(name, rng, target, truth, planned)
    costs = CostModel(target.verify_curve)
    name = rng.choice(["random", "random", "goodput", "static"])
    policy: Policy = RandomPolicy(rng) if name == "random" else make_policy(name, costs)
    limits = EngineLimits(
        memory_bytes=rng.choice([4 << 20, 64 << 20]),
        max_batch=rng.choice([1, 3, 8]),
        max_queue=64,
        prefill_chunk=rng.choice([1, 5, 16, 64]),
        max_draft_nodes=rng.choice([1, 4, 16, 16]),
        max_draft_depth=rng.choice([1, 3, 8, 8]),
        draft_window=rng.choice([16, 64, 1024]),
    )
    publisher = Publisher("toy", log, None)
    router = Router(policy, costs, plain_share=rng.choice([0.0, 0.01, 0.2]))
    return EngineCore(target, tokenizer, drafters, router, publisher, limits)


def _scripted(
    name: str, rng: random.Random, target: Target, truth: Truth, planned: list[Planned]
) -> Drafter:
    vocab, seed = target.info.vocab_size, rng.getrandbits(32)
    if name == "oracle":
        return OracleDrafter(truth.continuation, vocab, name=name)
    if name == "oracle_tree":
        return OracleDrafter(truth.continuation, vocab, num_decoys=2, name=name)
    if name == "half_true":
        return HalfTrueDrafter(truth, vocab, rng)
    if name == "wrong":
        return WrongDrafter(truth.continuation, vocab, name=name)
    if name == "random_chain":
        return RandomDrafter(vocab, is_tree=False, seed=seed, name=name)
    if name == "hostile":
        eos = target.info.eos_ids[0]
        return HostileDrafter(vocab, eos, seed, raises=rng.random() < 0.5, name=name)
    leaving = LeavingDrafter(vocab, rng)
    leaving.planned = planned
    return leaving
