"""Suite `routing`, live: all rows over one category, in alternation with `none`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from whiflash.bench.drafting import rounds_and_emitted
from whiflash.bench.forced_suite import arm_shares
from whiflash.bench.repetition import repeated_share
from whiflash.bench.routing_engine import BATCH, Asked, BatchRun, RoutingEngines
from whiflash.bench.routing_rows import RoutingRow
from whiflash.bench.suite import Column, Table
from whiflash.bench.timing import Sample, alternate, paired_ratio
from whiflash.bench.transformers_twin import TransformersTwin
from whiflash.core.rows import NONE

PLAIN_TWIN, LOOKUP_TWIN = "transformers", "its prompt lookup"
COLUMNS: Final = (
    Column("category", "text"),
    Column("batch", "at once"),
    Column("row", "row"),
    Column("repetition", "repeated", ".0%"),
    Column("accepted_length", "AL", ".2f"),
    Column("rate", "tokens/s", ".1f"),
    Column("ratio", "ratio to none", ".2f"),
    Column("lower", "lower bound", ".2f"),
    Column("same", "same text"),
    Column("shares", "rounds by arm"),
    Column("switches", "switches"),
    Column("catch_up", "catch-up", ".1%"),
)
NOTE: Final = (
    "Greedy, whole calls with prefill, cold: every call has a namespace of its own and stores "
    "nothing. All rows ran in alternation with `none`, which is the twin of each. `repeated`: "
    "tokens inside 8-grams seen before in the same answer; AL counts plain rounds too; `catch-up`: "
    "share of the time in which idle drafters were brought up to their roots."
)
Samples = Mapping[str, Sequence[Sample[Any]]]


@dataclass(frozen=True, slots=True)
class Twins:
    """Peers that run on the same prompts, one request at a time."""

    transformers: TransformersTwin

    def runs(self, asked: Asked) -> dict[str, Callable[[], Any]]:
        generate = self.transformers.generate
        return {
            PLAIN_TWIN: partial(generate, asked.ids, asked.max_tokens),
            LOOKUP_TWIN: partial(generate, asked.ids, asked.max_tokens, lookup=True),
        }


def single_cell(
    engines: RoutingEngines,
    rows: Sequence[RoutingRow],
    category: str,
    asked: Sequence[Asked],
    num_repeats: int,
    twins: Twins | None,
) -> list[dict[str, Any]]:
    """One request at a time; peers beside the rows."""
    found: list[Samples] = []
    for one in asked:
        runs = _runs(engines, rows, [one]) | (twins.runs(one) if twins else {})
        found.append(alternate(runs, num_repeats))
    return list(_table_rows(rows, category, 1, found))


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
    return list(_table_rows(rows, category, size, found))


def _runs(
    engines: RoutingEngines, rows: Sequence[RoutingRow], asked: Sequence[Asked]
) -> dict[str, Callable[[], Any]]:
    return {row.name: partial(engines.run, row, asked) for row in rows}


def _table_rows(
    rows: Sequence[RoutingRow], category: str, batch: int, found: Sequence[Samples]
) -> Iterator[dict[str, Any]]:
    static = {row.name for row in rows if row.is_static}
    for name in found[0]:
        samples = [sample for one in found for sample in one[name]]
        plain = [sample for one in found for sample in one[NONE]]
        ratio = paired_ratio(*([s.seconds / _num_tokens(s.result) for s in which]
                               for which in (plain, samples)))  # fmt: skip
        firsts = [one[name][0].result for one in found]
        yield {
            "category": category,
            "batch": batch,
            "row": name,
            "is_static": name in static,
            "rate": sum(_num_tokens(s.result) for s in samples) / sum(s.seconds for s in samples),
            "seconds": sum(s.seconds for s in samples),
            "tokens": sum(_num_tokens(s.result) for s in samples),
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
    catch_up_ms = sum(sample.result.catch_up_ms for sample in samples)
    return {
        "accepted_length": emitted / rounds if rounds else None,
        "shares": arm_shares(usages),
        "switches": sum(result.switches for result in ours),
        "catch_up": catch_up_ms / (1e3 * sum(sample.seconds for sample in samples)),
    }


def _texts(result: BatchRun | list[int]) -> list[tuple[int, ...]]:
    return list(result.texts) if isinstance(result, BatchRun) else [tuple(result)]


def _num_tokens(result: BatchRun | list[int]) -> int:
    return max(sum(len(text) for text in _texts(result)), 1)


def live_table(rows: Sequence[dict[str, Any]]) -> Table:
    return Table("live", "Live text, by category", NOTE, COLUMNS, tuple(rows))
