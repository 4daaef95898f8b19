"""Policies of random scenarios: every one there is, and such as no server would use."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch

from whiflash.core.protocols import Policy, TargetInfo
from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.routing.costs import CostModel
from whiflash.routing.neural_router import NeuralRouter
from whiflash.routing.policies.registry import make_policy
from whiflash.routing.router_file import RouterFile

RULES = ("arctic", "trtllm", "respec")
PUBLISHED = ("entropy", "neural", "bandit", *(f"rules:{rule}" for rule in RULES))
NAMES = ("random", "goodput", "static", *PUBLISHED, *(f"{name} + trim" for name in PUBLISHED))
"""As the policies call themselves."""
_WEIGHTS = [len(PUBLISHED) if name == "random" else 1 for name in NAMES]
_ROUTER_WIDTH = 5
Options = dict[str, object]


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


class Rhythm:
    """The arm at every n-th round from one round on, no draft otherwise."""

    name = "rhythm"

    def __init__(self, arm: str, period: int = 1, first: int = 0) -> None:
        self._arm, self._period, self._first, self._round = arm, period, first, 0

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        self._round += 1
        is_on = self._round >= self._first and self._round % self._period == 0
        return [Prediction(fixed=(self._arm if is_on else NONE, row.max_nodes)) for row in rows]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learns nothing."""


def random_policy(
    rng: random.Random, costs: CostModel, arms: Sequence[str], info: TargetInfo, folder: Path
) -> Policy:
    """One of NAMES, its parameters at random within `arms`; files that it reads go to `folder`."""
    name = rng.choices(NAMES, _WEIGHTS)[0]
    if name == "random":
        return RandomPolicy(rng)
    kind, _, mode = name.partition(" + ")
    kind, _, rule = kind.partition(":")
    options: Options = {"trim": True} if mode else {}
    if rule:
        options["rule"] = rule
    elif kind == "bandit":
        options["reward"] = rng.choice(["divergence", "efficiency"])
        options["scope"] = rng.choice(["query", "namespace"])
    elif kind in ("entropy", "neural"):
        high, low = rng.sample(list(arms), 2)
        options |= (
            {"tau": rng.choice([0.5, 2.0, 3.5]), "above": high, "below": low}
            if kind == "entropy"
            else {"file": str(_router(rng, high, low, info, folder)), "threshold": 0.0}
        )
    return make_policy(kind, costs, **options)


def _router(
    rng: random.Random, positive: str, negative: str, info: TargetInfo, folder: Path
) -> Path:
    """A network of random weights, as a file."""
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    shapes = {
        "fc1.weight": (_ROUTER_WIDTH, info.hidden_size), "fc1.bias": (_ROUTER_WIDTH,),
        "fc2.weight": (1, _ROUTER_WIDTH), "fc2.bias": (1,),
    }  # fmt: skip
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    path = folder / "router.safetensors"
    RouterFile(info.fingerprint, NeuralRouter(positive, negative, tensors)).write(path)
    return path
