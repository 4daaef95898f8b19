"""Suite `routing`: what the goals ask for, what was found, and by how much it was missed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from whiflash.bench.routing_pairs import (
    Category,
    best_static,
    best_static_of_all,
    by_category,
    compared,
    mixed,
)
from whiflash.bench.routing_rows import GOODPUT
from whiflash.bench.suite import Column, Table
from whiflash.bench.timing import Ratio
from whiflash.core.rows import NONE

Row = dict[str, Any]
LIVE, RECORDED = "live", "recorded"
COLUMNS: Final = (
    Column("goal", "goal"),
    Column("where", "where"),
    Column("wanted_text", "wanted"),
    Column("found_text", "found"),
    Column("lower_text", "lower bound"),
    Column("verdict", "verdict"),
)
_NOTE: Final = (
    "Found: the median over pairs of runs in alternation; goals of at least 0.98 are held against "
    "its lower bound, or the median where fewer than five pairs give none. Static arms include "
    "`none`; the best one is named after the fact, from the same runs. Shares are of rounds "
    "without prefill."
)
NEVER_UNDER: Final = 0.98
MIX_GAIN: Final = 1.15
GAP: Final = 0.6
LIVE_GAIN: Final = 1.8
LIVE_GAIN_WITHOUT_AMX: Final = 1.4
REPEATED_GAIN, COLD_GAIN = 3.0, 1.8
ROUTING, SWITCHING = 0.01, 0.03


@dataclass(frozen=True, slots=True)
class Goal:
    """wanted: least value, or the most where is_most; by_bound: held against the lower bound;
    is_share: a part of a whole. is_asked: whether the goal is one on this machine."""

    what: str
    where: str
    wanted: float
    found: float
    lower: float | None = None
    by_bound: bool = False
    is_most: bool = False
    is_share: bool = False
    is_asked: bool = True

    @property
    def missed_by(self) -> float:
        """0 where it is met."""
        judged = self.lower if self.by_bound and self.lower is not None else self.found
        return max(judged - self.wanted if self.is_most else self.wanted - judged, 0.0)

    def row(self) -> Row:
        """For the table; figures beside their words."""
        form = ".1%" if self.is_share else ".2f"
        met = self.missed_by == 0.0
        verdict = "met" if met else f"**missed** by {self.missed_by:{form}}"
        return {
            "goal": self.what,
            "where": self.where,
            "wanted": self.wanted,
            "found": self.found,
            "lower": self.lower,
            "met": met if self.is_asked else None,
            "wanted_text": f"{'under' if self.is_most else 'at least'} {self.wanted:{form}}",
            "found_text": f"{self.found:{form}}",
            "lower_text": "-" if self.lower is None else f"{self.lower:{form}}",
            "verdict": verdict if self.is_asked else f"no AMX, so not a goal here ({verdict})",
        }


def goals_table(
    live: Sequence[Row], forced: Sequence[Row], gaps: Mapping[str, float | None], has_amx: bool
) -> Table:
    """The goals of the project, whatever they came to. live, forced: rows of those tables; gaps:
    by scope, the closed share of the room to clairvoyant, None where there was no room."""
    goals = [*_live(live, has_amx), *_forced(forced, has_amx), *_gaps(gaps), *_shares(live)]
    return Table("goals", "Goals", _NOTE, COLUMNS, tuple(goal.row() for goal in goals))


def _live(rows: Sequence[Row], has_amx: bool) -> Iterator[Goal]:
    for batch in dict.fromkeys(row["batch"] for row in rows):
        texts = by_category(row for row in rows if row["batch"] == batch)
        yield from _against_static(texts, f"{LIVE}, {batch} at once")
        if batch == 1:
            gain = mixed(texts.values(), GOODPUT, NONE)
            wanted = LIVE_GAIN if has_amx else LIVE_GAIN_WITHOUT_AMX
            where = f"{LIVE}, 1 at once, {'AMX' if has_amx else 'no AMX'}"
            yield _goal("goodput : none, on the mix", where, wanted, gain)


def _forced(rows: Sequence[Row], has_amx: bool) -> Iterator[Goal]:
    if not rows:
        return
    texts = by_category(rows)
    yield from _against_static(texts, RECORDED)
    for store, wanted in (("repeated task", REPEATED_GAIN), ("cold", COLD_GAIN)):
        some = [texts[name] for name in dict.fromkeys(row["category"] for row in rows
                                                      if row["store"] == store)]  # fmt: skip
        if some:
            gain = mixed(some, GOODPUT, NONE)
            where = f"{RECORDED}, {store}, mix of {len(some)}"
            yield _goal("goodput : none", where, wanted, gain, is_asked=has_amx)


def _against_static(texts: Mapping[str, Category], scope: str) -> Iterator[Goal]:
    """Against the best arm of each text, the best of all texts, and `none`."""
    found = {name: (best_static(rows), compared(rows[GOODPUT], rows[best_static(rows)]))
             for name, rows in texts.items()}  # fmt: skip
    worst = min(found, key=lambda name: _judged(found[name][1]))
    arm, ratio = found[worst]
    yield _goal("goodput : best static arm, every text", f"{scope}; least: {worst} ({arm})",
                NEVER_UNDER, ratio, by_bound=True)  # fmt: skip
    best = best_static_of_all(list(texts.values()), NONE)
    yield _goal("goodput : best static arm of all texts, on the mix", f"{scope} ({best})",
                MIX_GAIN, mixed(texts.values(), GOODPUT, best))  # fmt: skip
    plain = {name: compared(rows[GOODPUT], rows[NONE]) for name, rows in texts.items()}
    least = min(plain, key=lambda name: _judged(plain[name]))
    yield _goal("goodput : none, every text", f"{scope}; least: {least}",
                NEVER_UNDER, plain[least], by_bound=True)  # fmt: skip


def _judged(ratio: Ratio) -> float:
    return ratio.median if ratio.lower is None else ratio.lower


def _goal(
    what: str,
    where: str,
    wanted: float,
    ratio: Ratio,
    *,
    by_bound: bool = False,
    is_asked: bool = True,
) -> Goal:
    return Goal(what, where, wanted, ratio.median, ratio.lower, by_bound, is_asked=is_asked)


def _gaps(gaps: Mapping[str, float | None]) -> Iterator[Goal]:
    for scope, gap in gaps.items():
        if gap is not None:
            what = "gap from the best static arm of each text to clairvoyant, closed"
            yield Goal(what, f"{scope}, offline", GAP, gap, is_share=True)


def _shares(rows: Sequence[Row]) -> Iterator[Goal]:
    """Of goodput's rounds, the greatest of any batch."""
    for what, key, wanted in (("routing, share of a round", "routing", ROUTING),
                              ("switching with catch-up, share of a round", "catch_up",
                               SWITCHING)):  # fmt: skip
        shares = {batch: _mean(row[key] for row in rows
                               if (row["row"], row["batch"]) == (GOODPUT, batch))
                  for batch in dict.fromkeys(row["batch"] for row in rows)}  # fmt: skip
        for batch, share in shares.items():
            if share is not None:
                yield Goal(what, f"{LIVE}, {batch} at once", wanted, share, is_most=True,
                           is_share=True)  # fmt: skip


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
