"""Rows of the suite `routing` compared pair by pair: a pair ran in alternation."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from whiflash.bench.timing import Ratio, paired_ratio

Row = Mapping[str, Any]
Category = Mapping[str, Row]
"""Rows of one text by name. A measured one has `paces`, milliseconds a token of each of its runs;
those of the same place ran in the same minutes on the same prompt."""


def by_category(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """Measured rows by text and name; what was not run (offline, not installed) is left out."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.get("paces"):
            found.setdefault(row["category"], {})[row["row"]] = row
    return found


def compared(ours: Row, baseline: Row) -> Ratio:
    """Speed-up of `ours` over `baseline`, of the same text."""
    return paired_ratio(baseline["paces"], ours["paces"])


def best_static(rows: Category) -> str:
    """The arm (or `none`) that is fastest when it is taken throughout."""
    static = [name for name, row in rows.items() if row["is_static"]]
    return max(static, key=lambda name: float(rows[name]["ratio"]))


def mixed(categories: Iterable[Category], ours: str, baseline: str) -> Ratio:
    """Over all texts: the i-th pair of each makes, by geometric mean, the i-th of the mix; as many
    as the text with the fewest has."""
    cells = [_ratios(rows[ours], rows[baseline]) for rows in categories]
    mixes = [statistics.geometric_mean(pair) for pair in zip(*cells, strict=False)]
    return paired_ratio(mixes, [1.0] * len(mixes))


def best_static_of_all(categories: Sequence[Category], none: str) -> str:
    """The static row that is fastest on the mix."""
    static = [name for name, row in categories[0].items() if row["is_static"]]
    return max(static, key=lambda name: mixed(categories, name, none).median)


def _ratios(ours: Row, baseline: Row) -> list[float]:
    return [b / o for b, o in zip(baseline["paces"], ours["paces"], strict=True)]
