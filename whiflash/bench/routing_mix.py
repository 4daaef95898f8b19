"""Suite `routing`: all categories together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from whiflash.bench.routing_pairs import Category, best_static_of_all, by_category, mixed
from whiflash.bench.routing_rows import GOODPUT
from whiflash.bench.suite import Column, Highlight, Table
from whiflash.core.rows import NONE

Row = dict[str, Any]
COLUMNS: Final = (
    Column("batch", "at once"),
    Column("row", "row"),
    Column("mix", "ratio to none, mix", ".2f"),
    Column("lower", "lower bound", ".2f"),
    Column("worst", "least category", ".2f"),
    Column("worst_at", "which"),
    Column("same", "same text"),
)
_NOTE: Final = (
    "`mix`: pair by pair the geometric mean over the categories of the ratio to `none`, and of "
    "these the median and its lower bound; the least category is the one where the row gains least "
    "(or loses most)."
)


def mix_table(rows: Sequence[Row]) -> Table:
    """One line per measured row of the live table and batch."""
    lines = [line for batch in dict.fromkeys(row["batch"] for row in rows)
             for line in _lines(batch, _texts(rows, batch))]  # fmt: skip
    return Table("mix", "All categories", _NOTE, COLUMNS, tuple(lines))


def _texts(rows: Sequence[Row], batch: int) -> list[Category]:
    return list(by_category(row for row in rows if row["batch"] == batch).values())


def _lines(batch: int, categories: Sequence[Category]) -> Iterator[Row]:
    for name in categories[0]:
        mine = [rows[name] for rows in categories]
        worst = min(mine, key=lambda row: float(row["ratio"]))
        ratio = mixed(categories, name, NONE)
        yield {
            "batch": batch,
            "row": name,
            "mix": ratio.median,
            "lower": ratio.lower,
            "pairs": ratio.num_pairs,
            "worst": worst["ratio"],
            "worst_at": worst["category"],
            "same": all(row["same"] for row in mine),
        }


def mix_highlights(rows: Sequence[Row]) -> Iterator[Highlight]:
    """goodput and the best static arm, by batch."""
    for batch in dict.fromkeys(row["batch"] for row in rows):
        categories = _texts(rows, batch)
        lines = {line["row"]: line for line in _lines(batch, categories)}
        mine, best = lines[GOODPUT], best_static_of_all(categories, NONE)
        yield Highlight(
            what=f"routed over all arms, mix of five kinds of text, {batch} at once",
            figure=f"{mine['mix']:.2f}x, least {mine['worst']:.2f}x ({mine['worst_at']})",
            twin=f"no drafting; best single arm ({best}) {lines[best]['mix']:.2f}x",
            setting="greedy, cold, same text" if mine["same"] else "greedy, **not the same text**",
        )
