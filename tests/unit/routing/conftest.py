"""Builders, and a synthetic world in which a router decides and is paid by known costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.rows import NONE, Outcome, RouteRow, StepCost
from whiflash.core.signals import Signals
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import make_policy
from whiflash.routing.router import Router

# The shape of a small model on two CPU cores (a staircase at 32 rows), in milliseconds.
STAIRCASE = CostCurve(((1, 29.0), (8, 32.0), (16, 35.0), (32, 42.0), (64, 79.0), (256, 300.0)))


def make_row(
    sequence_id: int = 0,
    drafts: dict[str, DraftTree] | None = None,
    paid: tuple[str, ...] = (),
    max_nodes: int = 16,
    matched: int = 8,
    entropy: float = 0.3,
    namespace: str = "local",
) -> RouteRow:
    ready = drafts or {}
    return RouteRow(
        sequence_id, namespace, Signals(entropy, 0.5), (NONE, *ready, *paid), ready, matched,
        max_nodes, 200,
    )  # fmt: skip


@dataclass(frozen=True)
class Text:
    """What the drafts of one kind of text are like: how often there is one, how long it is, the
    acceptance per token that it claims and the one that is true."""

    found: float
    length: int
    claimed: float
    true: float
    matched: int
    entropy: float


COPY = Text(0.95, 16, 0.9, 0.93, 24, 0.05)
CODE = Text(0.8, 12, 0.75, 0.75, 6, 0.4)
PROSE = Text(0.5, 8, 0.45, 0.25, 2, 2.0)
HOSTILE = Text(1.0, 16, 0.95, 0.05, 16, 1.0)


@dataclass
class World:
    """`texts[i]` is what sequence i writes. True costs are the staircase times `slowdown`, plus
    1 ms, and `look_ms` per row that is looked at; the router sees them with noise and outliers,
    the score does not."""

    router: Router
    texts: list[Text]
    seed: int = 0
    noise: float = 0.08
    slowdown: float = 1.0
    curve: CostCurve = STAIRCASE
    look_ms: float = 0.02
    emitted: int = 0
    total_ms: float = 0.0
    arms: dict[int, list[str]] = field(default_factory=dict)
    looks: int = 0
    awake: set[int] | None = None

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    @property
    def goodput(self) -> float:
        """Tokens per second of true time."""
        return 1e3 * self.emitted / self.total_ms

    def run(self, steps: int, num_rows: int | None = None) -> World:
        for _ in range(steps):
            self.step(len(self.texts) if num_rows is None else num_rows)
        self.router.check_integrity()
        return self

    def step(self, num_rows: int) -> None:
        looked = [i for i in range(num_rows) if self.awake is None or i in self.awake]
        texts = [self.texts[i] for i in looked]
        rows = [replace(self._row(i, self.texts[i]), load=num_rows) for i in looked]
        asleep = num_rows - len(rows)
        choices = self.router.choose(rows, asleep)
        asked = [
            row.drafts["retrieval"] if choice.arm == "retrieval" else DraftTree.empty()
            for row, choice in zip(rows, choices, strict=True)
        ]
        trees = self.router.trim(asked, choices, asleep)
        accepted = [self._accepted(t, tree) for t, tree in zip(texts, trees, strict=True)]
        outcomes = [
            Outcome(row, choice, len(tree), count, count + 1, False)
            for row, choice, tree, count in zip(rows, choices, trees, accepted, strict=True)
        ]
        drafted = dict(zip(looked, (len(tree) > 0 for tree in trees), strict=True))
        for index in range(num_rows):
            self.arms.setdefault(index, []).append("retrieval" if drafted.get(index) else NONE)
        self._pay(outcomes, asleep)
        looks = {index: drafted.get(index) for index in range(num_rows)}
        self.awake = self.router.awake(looks, is_prefilling=False)

    def _row(self, index: int, text: Text) -> RouteRow:
        found = self.random.random() < text.found
        length = text.length if found else 0
        claimed = text.claimed ** np.arange(1, length + 1)
        tree = DraftTree.chain(np.zeros(length, np.int32), claimed)
        return make_row(index, {"retrieval": tree}, matched=text.matched * found,
                        entropy=text.entropy)  # fmt: skip

    def _accepted(self, text: Text, tree: DraftTree) -> int:
        hits = self.random.random(len(tree)) < text.true
        return len(hits) if hits.all() else int(np.argmin(hits))

    def _pay(self, outcomes: list[Outcome], asleep: int) -> None:
        nodes = sum(outcome.drafted for outcome in outcomes)
        emitted = sum(outcome.emitted for outcome in outcomes) + asleep
        tokens = len(outcomes) + nodes + asleep
        verify = self.slowdown * self.curve.at(tokens)
        look = self.look_ms * len(outcomes)
        self.looks += len(outcomes)
        self.emitted += emitted
        self.total_ms += verify + look + 1.0
        stretch = float(self.random.lognormal(0.0, self.noise)) if self.noise else 1.0
        if self.noise and self.random.random() < 0.01:
            stretch *= 4.0
        step = StepCost(
            tokens, verify * stretch, {"retrieval": look} if outcomes else {},
            (verify + look + 1.0) * stretch, emitted, nodes == 0, True,
            num_looked=len(outcomes), look_ms=look * stretch,
        )  # fmt: skip
        self.router.observe(outcomes, step)


def make_world(
    texts: list[Text], policy: str = "goodput", seed: int = 0, **options: object
) -> World:
    costs = CostModel(STAIRCASE)
    share = options.pop("plain_share", 0.01)
    assert isinstance(share, float)
    noise = options.pop("noise", 0.08)
    assert isinstance(noise, float)
    look_ms = options.pop("look_ms", 0.02)
    assert isinstance(look_ms, float)
    router = Router(make_policy(policy, costs, **options), costs, plain_share=share, seed=seed)
    return World(router, texts, seed, noise, look_ms=look_ms)


@pytest.fixture
def row() -> Callable[..., RouteRow]:
    return make_row


@pytest.fixture
def world() -> Callable[..., World]:
    return make_world


@pytest.fixture
def text() -> dict[str, Text]:
    return {"copy": COPY, "code": CODE, "prose": PROSE, "hostile": HOSTILE}
