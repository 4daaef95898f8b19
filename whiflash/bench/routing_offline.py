"""Suite `routing`, offline: every policy and the clairvoyant choice along the same logged texts, at
the costs that were measured while they were logged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from whiflash.bench.routing_rows import GOODPUT
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
    "least 2 % faster. entropy's tau is the best in hindsight over "
    "these very texts, which flatters it."
)


@dataclass(frozen=True, slots=True)
class OfflineLog:
    """A survey's runs, and the sequence numbers of each category's texts."""

    runs: tuple[LoggedRun, ...]
    numbers: Mapping[str, Sequence[int]]

    @classmethod
    def read(cls, log: Path, numbers: Mapping[str, Sequence[int]]) -> OfflineLog:
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


def offline_table(log: OfflineLog, arms: Sequence[str], policies: Sequence[str]) -> Table:
    """A part per category. arms: by name; policies: beside the static ones."""
    static = [f"{STATIC}{arm}" for arm in (NONE, *arms)]
    rows = [
        row
        for category in log.numbers
        if (runs := log.of(category))
        for row in _rows(category, runs, [*static, *policies])
    ]
    return Table("offline", "Offline: regret and the clairvoyant choice", NOTE, COLUMNS,
                 tuple(rows))  # fmt: skip


def _rows(
    category: str, runs: Sequence[LoggedRun], policies: Sequence[str]
) -> Iterator[dict[str, Any]]:
    walks = evaluate(runs, policies)
    found = [result(walk, walks[-1]) for walk in walks]
    rates = {one["policy"]: one["tokens_per_s"] for one in found}
    static = max(rate for policy, rate in rates.items() if policy.startswith(STATIC))
    room = rates[ORACLE] - static
    for one in found:
        name, rate = one["policy"], one["tokens_per_s"]
        is_routed = not name.startswith(STATIC)
        yield {
            "category": category,
            "policy": _shown(name),
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


def _shown(policy: str) -> str:
    if policy == ORACLE:
        return "clairvoyant"
    return policy.removeprefix(STATIC) if policy.startswith(STATIC) else policy.split(":")[0]


def closed_gap(table: Table) -> float | None:
    """goodput's share of the room between best static arm and clairvoyant, over all categories
    together: where there is hardly any room, a share of one category says nothing."""
    mine = [row for row in table.rows if row["policy"] == GOODPUT]
    room = sum(float(row["room"]) for row in mine)
    return sum(float(row["gained"]) for row in mine) / room if room > 0 else None
