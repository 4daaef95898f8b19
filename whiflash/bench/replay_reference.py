"""What was measured on the same recorded runs before this index was built, to hold ours against.

Tokens a round of a depth-64 suffix tree with counts (factor 2, edge probability 0.1 and above, 32
tokens at most, chains) in cl100k's tokens. Another tokenizer and another drafter: ratios between
rows are comparable, absolute values are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from whiflash.bench.suite import Column

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """Tokens a round of one set of `runs` recorded runs, by the columns of our tables."""

    runs: int
    sources: Mapping[str, float]
    silos: Mapping[str, float] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)


REFERENCES: Final[Mapping[str, Reference]] = {
    "tau-bench airline, 4 trials a task": Reference(
        200,
        {"local": 1.98, "shared": 3.64, "both": 3.97},
        {"1": 3.97, "2": 3.59, "4": 3.21, "8": 2.90, "16": 2.68, "no store": 1.98},
        {"0": 3.97, "4": 3.96, "16": 3.96, "32": 3.95},
    ),
    "tau-bench airline, every task once": Reference(
        50,
        {"local": 1.87, "shared": 2.38, "both": 2.85},
        {"1": 2.85, "2": 2.66, "4": 2.47, "8": 2.33, "16": 2.12, "no store": 1.87},
        {"0": 2.85, "4": 2.77, "16": 2.63, "32": 2.16},
    ),
    "SWE-agent": Reference(22, {"local": 1.61, "shared": 1.86, "both": 2.60}),
    "InterCode CTF": Reference(15, {"local": 1.97, "shared": 1.39, "both": 2.13}),
    "BFCL multi-turn": Reference(200, {"local": 1.55, "shared": 2.78, "both": 3.49}),
}
COLUMNS: Final = (
    Column("set", "set"),
    Column("what", "what"),
    Column("ours", "ours, tok/round", ".2f"),
    Column("earlier", "suffix tree, tok/round", ".2f"),
    Column("ours_kept", "ours, of the best", ".0%"),
    Column("earlier_kept", "suffix tree, of the best", ".0%"),
)


def reference_rows(
    sources: Sequence[Row], silos: Sequence[Row], delays: Sequence[Row]
) -> list[Row]:
    """Our rows beside the earlier ones, where a set is the same and whole; `kept` holds each
    against one store that everybody sees at once, of its own kind."""
    known = {
        row["set"]: REFERENCES[row["set"]]
        for row in sources
        if row["set"] in REFERENCES and row["runs"] == REFERENCES[row["set"]].runs
    }
    rows: list[Row] = []
    for row in sources:
        if row["set"] in known:
            ours = {key: row[f"{key}_tokens_per_round"] for key in ("local", "shared", "both")}
            rows += _beside(row["set"], "{}", ours, known[row["set"]].sources, "both")
    for row in silos:
        if row["set"] in known:
            rows += _beside(row["set"], "silos: {}", row, known[row["set"]].silos, "1")
    for row in delays:
        if row["set"] in known:
            rows += _beside(row["set"], "seen {} runs later", row, known[row["set"]].delays, "0")
    return rows


def _beside(name: str, what: str, ours: Row, earlier: Mapping[str, float], best: str) -> list[Row]:
    return [
        {
            "set": name,
            "what": key if key == "no store" else what.format(key),
            "ours": ours[key],
            "earlier": value,
            "ours_kept": ours[key] / ours[best],
            "earlier_kept": value / earlier[best],
        }
        for key, value in earlier.items()
    ]
