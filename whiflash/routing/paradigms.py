"""Which arm is of which paradigm, for rules that choose between paradigms."""

from __future__ import annotations

from collections.abc import Sequence

from whiflash.core.rows import NONE, RouteRow

RETRIEVAL = "retrieval"
AUTOREGRESSIVE = ("eagle3",)
BLOCK = ("dflash", "ddtree")
MODELS = (*AUTOREGRESSIVE, *BLOCK)


def first_of(names: Sequence[str], arms: Sequence[str]) -> str | None:
    """The first of `names` that is among `arms`."""
    return next((name for name in names if name in arms), None)


def model_arm(named: str | None, row: RouteRow) -> str:
    """The arm that drafts where retrieval does not: the one named, else the row's first that is
    not retrieval; `none` where the row has none."""
    if named is not None:
        return named if named in row.arms else NONE
    return next((arm for arm in row.arms if arm not in (NONE, RETRIEVAL)), NONE)


def found(row: RouteRow, arm: str) -> bool:
    """Whether a free arm came with a draft for this row."""
    return arm in row.arms and arm in row.drafts and len(row.drafts[arm]) > 0
