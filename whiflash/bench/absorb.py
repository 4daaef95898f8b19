"""What absorbing a backlog costs, by its length: K and V alone, layers in full, the target again.

A window of W tokens bounds a late start at the row W; a turn that finds its drafter's K/V pays the
row of what is new; without the tap plane the target runs over the backlog once more.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from statistics import median
from typing import Any, Final, TypeVar

import numpy as np
import torch

from whiflash.bench.suite import Column, Table
from whiflash.bench.timing import alternate
from whiflash.core.rows import CatchUp
from whiflash.drafters.eagle3.drafter import Eagle3Drafter
from whiflash.drafters.eagle3.model import DraftRows, Eagle3Body
from whiflash.drafters.neural import NeuralDrafter
from whiflash.engine.build import EngineParts
from whiflash.models.draft.rope import Turns

LENGTHS: Final = (4, 16, 64, 256, 1024)
_KEPT: Final = 256  # positions absorbed before
_NO_IDS: Final = np.zeros(0, np.int32)
Taps = TypeVar("Taps", bound=NeuralDrafter[Any])

COLUMNS: Final = (
    Column("positions", "positions"),
    Column("eagle3", "eagle3, ms", ".2f"),
    Column("whole", "eagle3, layers in full, ms", ".2f"),
    Column("dflash", "dflash, ms", ".2f"),
    Column("target", "the target again, ms", ".1f"),
)


class WholeBody(Eagle3Body):
    """The same weights; what is absorbed runs through all layers in full."""

    def store(
        self, embedded: torch.Tensor, feature: torch.Tensor, turns: Turns, rows: DraftRows
    ) -> None:
        self.run(embedded, feature, turns, rows)


class WholeLayers(Eagle3Drafter):
    """A drafter without KV-only prefill, on the weights of another one."""

    def __init__(self, drafter: Eagle3Drafter) -> None:
        vars(self).update(vars(twin_of(drafter)))
        self._body = WholeBody.__new__(WholeBody)
        vars(self._body).update(vars(drafter._body))


def twin_of(drafter: Taps) -> Taps:
    """The same weights, with sequences of its own."""
    twin = copy(drafter)
    twin._open = {}
    return twin


def absorb_table(parts: EngineParts, num_repeats: int) -> Table:
    """Medians of alternating runs; one row, random fused taps."""
    eagle3, dflash = parts.drafters["eagle3"], parts.drafters["dflash"]
    assert isinstance(eagle3, Eagle3Drafter)
    assert isinstance(dflash, NeuralDrafter)
    drafters = {"eagle3": eagle3, "whole": WholeLayers(eagle3), "dflash": dflash}
    rows = [_row(parts, drafters, length, num_repeats) for length in LENGTHS]
    return Table("absorb", "Absorbing a backlog", _NOTE, COLUMNS, tuple(rows))


def _row(
    parts: EngineParts, drafters: dict[str, NeuralDrafter[Any]], length: int, num_repeats: int
) -> dict[str, Any]:
    runs = {name: _absorb_once(drafter, length) for name, drafter in drafters.items()}
    samples = alternate(runs, num_repeats + 1)
    times = {name: 1e3 * median(s.seconds for s in own[1:]) for name, own in samples.items()}
    return {"positions": length, **times, "target": parts.router.costs.verify_ms(length)}


def _absorb_once(drafter: NeuralDrafter[Any], length: int) -> Callable[[], None]:
    """Absorbs `length` positions behind the kept ones, and forgets them again."""
    fused = torch.randn(_KEPT + length, drafter.fused_width)
    ids = np.ones(_KEPT + length + 1, np.int32)
    drafter.open(0, "", _NO_IDS, _NO_IDS)
    drafter.absorb([CatchUp(0, 0, ids[: _KEPT + 1], fused[:_KEPT], is_window_start=False)])

    def run() -> None:
        held = drafter.absorbed(0)
        drafter.absorb([CatchUp(0, held, ids[held:], fused[held:], is_window_start=False)])
        drafter.crop(0, _KEPT)

    return run


_NOTE: Final = (
    "One sequence with about 256 positions absorbed before. `layers in full`: the same drafter "
    "without KV-only prefill; DFlash computes nothing but K and V by its nature. `the target "
    "again`: its measured curve for as many tokens, what a drafter without kept taps would need."
)
