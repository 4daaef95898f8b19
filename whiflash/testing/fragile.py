"""Neural drafters that fail now and then, as if they were restarted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from whiflash.core.draft import DraftTree
from whiflash.core.rows import CatchUp, DraftRow
from whiflash.drafters.neural import NeuralDrafter

FAILURE_SHARE = 0.03


class FragileError(RuntimeError):
    """What a fragile drafter raises."""


def make_fragile(
    drafter: NeuralDrafter[Any], rng: random.Random, share: float = FAILURE_SHARE
) -> None:
    """From now on `share` of its calls fail: a catch-up before or after it was taken in, so that
    nobody may trust what is held; a proposal after it was made."""
    absorb, propose = drafter.absorb, drafter.propose

    def fragile_absorb(rows: Sequence[CatchUp]) -> None:
        if rng.random() < share / 2:
            raise FragileError("gone before the catch-up")
        absorb(rows)
        if rng.random() < share / 2:
            raise FragileError("gone after the catch-up")

    def fragile_propose(rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = propose(rows)
        if rng.random() < share:
            raise FragileError("gone while drafting")
        return trees

    drafter.absorb = fragile_absorb  # type: ignore[method-assign]
    drafter.propose = fragile_propose  # type: ignore[method-assign]
