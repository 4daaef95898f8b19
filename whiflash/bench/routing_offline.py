"""Suite `routing`, offline: every policy and the clairvoyant choice along the same logged texts, at
the costs that were measured while they were logged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from whiflash.bench.routing_rows import CLAIRVOYANT, GOODPUT, RoutingRow
from whiflash.bench.suite import Column, Table
from whiflash.core.rows import NONE
from whiflash.obs.round_log import read_rounds
from whiflash.routing.policies.registry import ORACLE
from whiflash.routing.replay.evaluate import evaluate, result
from whiflash.routing.replay.log import LoggedRun, logged_runs
from whiflash.routing.replay.tau import TauSearch, best

STATIC: Final = "static:arm="
_LEAST_ROOM: Final = 0.02  # of the best static arm's speed
COLUMNS: Final = (
    Column("category", "text"),
    Column("policy", "policy"),
    Column("offline", "offline"),
    Column("tokens_per_s", "tokens/s", ".1f"),
    Column("ratio", "ratio to none", ".2f"),
    Column("accepted_length", "AL", ".2f"),
    Column("regret", "regret", ".1%"),
    Column("gap", "of the gap closed", ".0%"),
    Column("shares", "rounds by arm"),
    Column("switches", "switches"),
    Column("censored", "censored rounds"),
)
NOTE: Final = (
    "Nothing here ran: policies are led along logged texts, where every arm had proposed at every "
    "root, one row at a time. `clairvoyant` knows the text to come and takes the fastest path "
    "through it (dynamic programming, measured costs); regret is the share of its speed that was "
    "missed, and `of the gap closed` how far a policy comes from the best static arm of the "
    "category (`none` among them) to clairvoyant, where that is at "
    "least 2 % faster. entropy's tau is the best in hindsight over the live "
    "texts, which flatters it. No log holds hidden states: `neural` is not here, and goodput's "
    "heads, where there are any, see the mean of them. EAGLE-3 is a chain."
)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OfflineLog:
    """A survey's runs, and the sequence numbers of each category's texts."""

    runs: tuple[LoggedRun, ...]
    numbers: Mapping[str, Sequence[int]]

    @classmethod
    def read(cls, log: Path, texts: Sequence[Row]) -> OfflineLog:
        """texts: a row per category, with its `numbers`."""
        numbers = {row["category"]: row["numbers"] for row in texts}
        return cls(tuple(logged_runs(read_rounds(log))), numbers)

    def of(self, category: str) -> list[LoggedRun]:
        """Runs with that category's turns alone."""
        wanted = set(self.numbers[category])
        cut = (replace(run, turns=[turn for turn in run.turns if turn.sequence in wanted])
               for run in self.runs)  # fmt: skip
        return [run for run in cut if run.turns]

    def tau(self, above: str, below: str) -> float:
        """The best threshold of the entropy rule along all texts, in hindsight."""
        return float(best(TauSearch(self.runs, above, below).scores()).tau)


def offline_rows(log: OfflineLog, rows: Sequence[RoutingRow]) -> list[Row]:
    """A part per category: each of `rows` that can be led along a log, and clairvoyant."""
    policies = {_policy(row): row.name for row in rows if _is_led(row)}
    return [
        line
        for category in log.numbers
        if (runs := log.of(category))
        for line in _lines(category, runs, policies)
    ]


def _is_led(row: RoutingRow) -> bool:
    """The survey's arms, and policies that need no hidden state."""
    return row.name not in ("eagle3 tree", "neural")


def _policy(row: RoutingRow) -> str:
    return row.policy if row.pinned is None else f"{STATIC}{row.pinned}"


def _lines(category: str, runs: Sequence[LoggedRun], policies: Mapping[str, str]) -> Iterator[Row]:
    walks = evaluate(runs, list(policies))
    found = [result(walk, walks[-1]) for walk in walks]
    rates = {one["policy"]: one["tokens_per_s"] for one in found}
    static = max(rate for policy, rate in rates.items() if policy.startswith(STATIC))
    room = rates[ORACLE] - static
    for one in found:
        policy, rate = one["policy"], one["tokens_per_s"]
        is_routed = not policy.startswith(STATIC)
        yield {
            "category": category,
            "policy": CLAIRVOYANT if policy == ORACLE else policies[policy],
            "offline": True,
            "tokens_per_s": rate,
            "ratio": rate / rates[f"{STATIC}{NONE}"],
            "accepted_length": one["accepted_length"],
            "regret": one["regret"],
            "gained": rate - static,
            "room": room,
            "gap": (rate - static) / room if is_routed and room > _LEAST_ROOM * static else None,
            "shares": ", ".join(f"{arm} {share:.0%}" for arm, share in one["shares"].items()),
            "switches": one["switches"],
            "censored": one["censored_arm"] + one["censored_root"],
        }


def offline_table(rows: Sequence[Row]) -> Table:
    """Of all texts, live and recorded."""
    title = "Offline: regret and the clairvoyant choice"
    return Table("offline", title, NOTE, COLUMNS, tuple(rows))


def with_offline(rows: Sequence[Row], offline: Sequence[Row]) -> Iterator[Row]:
    """Measured rows, those of one request at a time with regret and gap; clairvoyant behind each
    text's last row of these."""
    known = {(row["category"], row["policy"]): row for row in offline}
    lone = [row for row in rows if row.get("batch", 1) == 1]
    last = {row["category"]: number for number, row in enumerate(lone)}
    places = {id(lone[number]): category for category, number in last.items()}
    for row in rows:
        found = known.get((row["category"], row["row"])) if row.get("batch", 1) == 1 else None
        yield row | ({"regret": found["regret"], "gap": found["gap"]} if found else {})
        path = known.get((places.get(id(row), ""), CLAIRVOYANT))
        if path is not None:
            yield _clairvoyant(row, path)


def _clairvoyant(row: Row, path: Row) -> Row:
    """Beside `row`, of the same text."""
    same = {key: row[key] for key in ("category", "batch", "set", "store") if key in row}
    figures = {key: path[key] for key in ("ratio", "accepted_length", "regret", "gap", "shares",
                                          "switches", "offline")}  # fmt: skip
    return same | {"row": f"{CLAIRVOYANT} (offline)", "is_static": False} | figures


def closed_gap(rows: Sequence[Row]) -> float | None:
    """goodput's share of the room between best static arm and clairvoyant, over all categories
    together: where there is hardly any room, a share of one category says nothing."""
    mine = [row for row in rows if row["policy"] == GOODPUT]
    room = sum(float(row["room"]) for row in mine)
    return sum(float(row["gained"]) for row in mine) / room if room > 0 else None
