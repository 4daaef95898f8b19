"""Suite `routing`, live: all rows over one category, in alternation with `none`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from whiflash.bench.drafting import rounds_and_emitted
from whiflash.bench.forced_suite import arm_shares
from whiflash.bench.repetition import repeated_share
from whiflash.bench.round_times import RoundTimes
from whiflash.bench.routing_engine import BATCH, Asked, BatchRun, RoutingEngines
from whiflash.bench.routing_pairs import best_static, by_category, compared
from whiflash.bench.routing_peers import Peers
from whiflash.bench.routing_rows import RoutingRow
from whiflash.bench.suite import Column, Table
from whiflash.bench.timing import Sample, alternate, paired_ratio
from whiflash.core.rows import NONE

COLUMNS: Final = (
    Column("category", "text"),
    Column("batch", "at once"),
    Column("row", "row"),
    Column("repetition", "repeated", ".0%"),
    Column("accepted_length", "AL", ".2f"),
    Column("rate", "tokens/s", ".1f"),
    Column("ratio", "ratio to none", ".2f"),
    Column("lower", "lower bound", ".2f"),
    Column("to_best", "to best static", ".2f"),
    Column("to_best_lower", "lower bound", ".2f"),
    Column("same", "same text"),
    Column("regret", "regret, offline", ".1%"),
    Column("gap", "gap closed, offline", ".0%"),
    Column("shares", "rounds by arm"),
    Column("switches", "switches"),
    Column("routing", "routing", ".2%"),
    Column("catch_up", "catch-up", ".2%"),
)
NOTE: Final = (
    "Greedy, whole calls with prefill, cold: every call has a namespace of its own and stores "
    "nothing. All rows ran in alternation with `none`, which is the twin of each. `repeated`: "
    "tokens inside 8-grams seen before in the same answer; AL counts plain rounds too; `to best "
    "static`: against the fastest of the rows with one arm throughout (or none) on the same text, "
    "pair by pair; `routing` and `catch-up`: shares of rounds without prefill that went into the "
    "choice (signals, looking, trimming and learning with it) and into bringing drafters up to "
    "their roots, their first look at the prompt included. `clairvoyant`, regret and the closed "
    "gap did not run: they come from the offline table."
)
Samples = Mapping[str, Sequence[Sample[Any]]]


def single_cell(
    engines: RoutingEngines,
    rows: Sequence[RoutingRow],
    category: str,
    asked: Sequence[Asked],
    num_repeats: int,
    peers: Peers | None,
) -> list[dict[str, Any]]:
    """One request at a time; peers beside the rows."""
    found: list[Samples] = []
    for one in asked:
        runs = _runs(engines, rows, [one]) | (peers.runs(one) if peers else {})
        found.append(alternate(runs, num_repeats))
    left_out = peers.left_out(category) if peers else ()
    return [*_table_rows(rows, category, 1, found), *left_out]


def batch_cell(
    engines: RoutingEngines,
    rows: Sequence[RoutingRow],
    category: str,
    asked: Sequence[Asked],
    num_repeats: int,
    size: int = BATCH,
) -> list[dict[str, Any]]:
    """`size` requests that come at once, the prompts over and over."""
    several = [asked[number % len(asked)] for number in range(size)]
    found = [alternate(_runs(engines, rows, several), num_repeats)]
    return _table_rows(rows, category, size, found)


def _runs(
    engines: RoutingEngines, rows: Sequence[RoutingRow], asked: Sequence[Asked]
) -> dict[str, Callable[[], Any]]:
    return {row.name: partial(engines.run, row, asked) for row in rows}


def _table_rows(
    rows: Sequence[RoutingRow], category: str, batch: int, found: Sequence[Samples]
) -> list[dict[str, Any]]:
    static = {row.name for row in rows if row.is_static}
    made = [_row(name, found) | {"category": category, "batch": batch, "is_static": name in static}
            for name in found[0]]  # fmt: skip
    return list(against_best(made))


def against_best(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each row of one text with its ratio to the best static one."""
    (measured,) = by_category(rows).values()
    best = measured[best_static(measured)]
    for row in rows:
        ratio = compared(row, best)
        yield row | {"to_best": ratio.median, "to_best_lower": ratio.lower}


def _row(name: str, found: Sequence[Samples]) -> dict[str, Any]:
    samples = [sample for one in found for sample in one[name]]
    plain = [sample for one in found for sample in one[NONE]]
    paces = [_pace_ms(sample) for sample in samples]
    ratio = paired_ratio([_pace_ms(sample) for sample in plain], paces)
    firsts = [one[name][0].result for one in found]
    tokens, seconds = sum(_num_tokens(s.result) for s in samples), sum(s.seconds for s in samples)
    return {
        "row": name,
        "rate": tokens / seconds,
        "seconds": seconds,
        "tokens": tokens,
        "paces": [round(pace, 4) for pace in paces],
        "ratio": ratio.median,
        "lower": ratio.lower,
        "pairs": ratio.num_pairs,
        "same": all(_texts(s.result) == _texts(p.result)
                    for s, p in zip(samples, plain, strict=True)),
        "repetition": statistics.fmean(repeated_share(text) for result in firsts
                                       for text in _texts(result)),
        **_drafting(firsts, samples),
    }  # fmt: skip


def _drafting(firsts: Sequence[Any], samples: Sequence[Sample[Any]]) -> dict[str, Any]:
    """What only our own runs tell."""
    ours = [result for result in firsts if isinstance(result, BatchRun)]
    if not ours:
        return {}
    usages = [usage for result in ours for usage in result.usages]
    rounds, emitted = rounds_and_emitted(usages)
    times = RoundTimes.sum(sample.result.times for sample in samples)
    return {
        "accepted_length": emitted / rounds if rounds else None,
        "shares": arm_shares(usages),
        "switches": sum(result.switches for result in ours),
        "routing": times.routing,
        "catch_up": times.catch_up,
    }


def _texts(result: BatchRun | list[int]) -> list[tuple[int, ...]]:
    return list(result.texts) if isinstance(result, BatchRun) else [tuple(result)]


def _num_tokens(result: BatchRun | list[int]) -> int:
    return max(sum(len(text) for text in _texts(result)), 1)


def _pace_ms(sample: Sample[Any]) -> float:
    """A token."""
    return 1e3 * sample.seconds / _num_tokens(sample.result)


def live_table(rows: Sequence[dict[str, Any]]) -> Table:
    return Table("live", "Live text, by category", NOTE, COLUMNS, tuple(rows))
