"""How much of a drafter's chain the target accepts, on texts it was not trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from whiflash.training.drafters.objective import Objective
from whiflash.training.features.store import FeatureStore, TextPlace


@dataclass(slots=True)
class Acceptance:
    """Chains of `depth` along texts, as rounds would run: each begins where the one before ended,
    and those that end a text are left out.

    accepted_length: tokens a round, the target's own included: exactly 1 + sum(positions).
    positions: share of the rounds whose i-th draft was accepted.
    """

    depth: int
    rounds: int = 0
    accepted: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.accepted = [0] * self.depth

    def walk(self, counts: Sequence[int]) -> None:
        """counts: accepted drafts at each root of one text, the first root first."""
        root = 0
        while root + self.depth <= len(counts):
            found = counts[root]
            self.rounds += 1
            for place in range(found):
                self.accepted[place] += 1
            root += found + 1

    @property
    def positions(self) -> list[float]:
        return [count / max(self.rounds, 1) for count in self.accepted]

    @property
    def accepted_length(self) -> float:
        return 1.0 + sum(self.positions)

    def record(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "accepted_length": round(self.accepted_length, 3),
            "positions": [round(share, 3) for share in self.positions],
            "rounds": self.rounds,
        }


def measure(
    objective: Objective,
    store: FeatureStore,
    texts: Iterable[TextPlace],
    autocast: AbstractContextManager[None],
) -> Mapping[str, Acceptance]:
    """By kind of text, and "all". Greedy texts measure greedy decoding exactly: a draft is right
    iff it is the token that came."""
    found: dict[str, Acceptance] = {"all": Acceptance(objective.depth)}
    with torch.no_grad(), autocast:
        for text in texts:
            counts = objective.accepted(store.load(text)).cpu().numpy().astype(np.int64).tolist()
            for kind in (text.kind, "all"):
                found.setdefault(kind, Acceptance(objective.depth)).walk(counts)
    return found
