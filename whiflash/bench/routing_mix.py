"""Suite `routing`: all categories together, and what the goals ask for."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Final

from whiflash.bench.routing_rows import GOODPUT
from whiflash.bench.suite import Column, Highlight, Table
from whiflash.core.rows import NONE

Row = dict[str, Any]
COLUMNS: Final = (
    Column("batch", "at once"),
    Column("row", "row"),
    Column("mix", "ratio to none, mix", ".2f"),
    Column("worst", "least category", ".2f"),
    Column("worst_at", "which"),
    Column("same", "same text"),
)
GOALS: Final = (
    Column("goal", "goal"),
    Column("wanted", "wanted", ".2f"),
    Column("found", "found", ".2f"),
    Column("met", "met"),
)
_NOTE: Final = (
    "`mix`: geometric mean over the categories of the paired median ratio to `none`; the least "
    "category is the one where the row gains least (or loses most)."
)


def mix_table(rows: Sequence[Row]) -> Table:
    """One line per row of the live table and batch."""
    keys = dict.fromkeys((row["batch"], row["row"]) for row in rows)
    return Table("mix", "All categories", _NOTE, COLUMNS,
                 tuple(_mix(rows, batch, name) for batch, name in keys))  # fmt: skip


def _mix(rows: Sequence[Row], batch: int, name: str) -> Row:
    mine = [row for row in rows if (row["batch"], row["row"]) == (batch, name)]
    worst = min(mine, key=lambda row: float(row["ratio"]))
    return {
        "batch": batch,
        "row": name,
        "is_static": mine[0]["is_static"],
        "mix": statistics.geometric_mean(row["ratio"] for row in mine),
        "worst": worst["ratio"],
        "worst_at": worst["category"],
        "same": all(row["same"] for row in mine),
    }


def goals_table(rows: Sequence[Row], mix: Table, gap: float | None, has_amx: bool) -> Table:
    """The goals of the issue, whatever they came to."""
    return Table(
        "goals", "Goals", "One request at a time where not said; static arms include `none`.",
        GOALS, tuple(_goals(rows, mix, gap, has_amx)),
    )  # fmt: skip


def _goals(rows: Sequence[Row], mix: Table, gap: float | None, has_amx: bool) -> Iterator[Row]:
    single = [row for row in mix.rows if row["batch"] == 1]
    best = max(row["mix"] for row in single if row["is_static"])
    (mine,) = (row["mix"] for row in single if row["row"] == GOODPUT)
    yield _goal("goodput : best static arm, least category", 0.98, min(_against_best(rows, 1)))
    yield _goal("goodput : best static arm of all, on the mix", 1.15, mine / best)
    yield _goal("goodput : none, on the mix", 1.8 if has_amx else 1.4, mine)
    least = min(float(row["ratio"]) for row in rows if row["row"] == GOODPUT)
    yield _goal("goodput : none, least cell of any batch", 0.98, least)
    if gap is not None:
        yield _goal("gap to clairvoyant closed (offline)", 0.6, gap)


def _against_best(rows: Sequence[Row], batch: int) -> list[float]:
    found = []
    for category in dict.fromkeys(row["category"] for row in rows):
        here = [row for row in rows if (row["category"], row["batch"]) == (category, batch)]
        (mine,) = (float(row["ratio"]) for row in here if row["row"] == GOODPUT)
        found.append(mine / max(float(row["ratio"]) for row in here if row["is_static"]))
    return found


def _goal(what: str, wanted: float, found: float) -> Row:
    return {"goal": what, "wanted": wanted, "found": found, "met": found >= wanted}


def mix_highlights(mix: Table) -> Iterator[Highlight]:
    """goodput and the best static arm, by batch."""
    for batch in dict.fromkeys(row["batch"] for row in mix.rows):
        here = [row for row in mix.rows if row["batch"] == batch]
        static = max((row for row in here if row["is_static"] and row["row"] != NONE),
                     key=lambda row: float(row["mix"]))  # fmt: skip
        (mine,) = (row for row in here if row["row"] == GOODPUT)
        yield Highlight(
            what=f"routed over all arms, mix of five kinds of text, {batch} at once",
            figure=f"{mine['mix']:.2f}x, least {mine['worst']:.2f}x ({mine['worst_at']})",
            twin=f"no drafting; best single arm ({static['row']}) {static['mix']:.2f}x",
            setting="greedy, cold, same text" if mine["same"] else "greedy, **not the same text**",
        )
