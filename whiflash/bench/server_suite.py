"""Suite `server`: routed against `none` over the wire, by kind of text and concurrency."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from whiflash.bench.drafting import rounds_and_emitted
from whiflash.bench.progress import say
from whiflash.bench.server_load import Answer, LoadRun, Request, run_load
from whiflash.bench.server_process import served
from whiflash.bench.server_prompts import LOOP, ServedKind, served_kinds
from whiflash.bench.suite import Column, Highlight, SuiteOptions, SuiteResult, Table
from whiflash.bench.timing import Ratio, Sample, alternate, paired_ratio
from whiflash.core.rows import NONE

COLUMNS: Final = (
    Column("kind", "text"),
    Column("concurrency", "at once"),
    Column("tokens", "tokens"),
    Column("accepted_length", "AL", ".2f"),
    Column("verified", "verified a token", ".2f"),
    Column("routed", "routed, tokens/s", ".1f"),
    Column("none", "none, tokens/s", ".1f"),
    Column("ratio", "routed : none", ".2f"),
    Column("lower", "lower bound", ".2f"),
    Column("pairs", "pairs"),
    Column("same", "same text"),
    Column("first_ms", "first token, ms", ".0f"),
    Column("first_none_ms", "none", ".0f"),
    Column("token_ms", "per token, ms", ".1f"),
    Column("token_none_ms", "none", ".1f"),
    Column("edge_us", "edge per token, us", ".0f"),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """(concurrency, requests, pairs of runs) of each load, tokens of an answer.

    Small loads are short and noisy, so they get more pairs; the counts are those from which the
    95 % bound of the median is not the least pair of all. Tool loops, whose prompts make their
    runs long and whose gain is far from 1, get `loop_pairs`.
    """

    loads: tuple[tuple[int, int, int], ...]
    max_tokens: int
    loop_pairs: int


FULL: Final = Effort(((1, 2, 9), (4, 4, 12), (16, 16, 11), (32, 32, 12)), 64, 5)
QUICK: Final = Effort(((1, 1, 1), (4, 4, 1)), 8, 1)


def run(options: SuiteOptions) -> SuiteResult:
    """About half an hour on two cores; `is_quick` about one."""
    effort = QUICK if options.is_quick else FULL
    rows: list[dict[str, Any]] = []
    with served(options.model) as address:
        kinds = served_kinds()
        run_load(address.grpc, 1, _requests(kinds[0], 1, None, 8))  # compiled on first use
        for kind in kinds:
            for concurrency, count, pairs in effort.loads:
                say(f"{kind.name}, {concurrency} at once")
                load = (concurrency, count, effort.loop_pairs if kind.name == LOOP else pairs)
                rows.append(_measure(address.grpc, kind, load, effort.max_tokens))
    table = Table("load", "Routed drafting over gRPC, by load", _NOTE, COLUMNS, tuple(rows))
    return SuiteResult(
        title="the server under load",
        setting={
            "model": options.model,
            "server": "`whiflash serve` with its defaults, clients in another process on the same "
            "machine, public gRPC, streaming",
            "sampling": "chat and creative at temperature 0.8, code and tool loops greedy; twin "
            "runs send the same prompts and seeds",
        },
        tables=(table,),
        highlights=_highlights(rows),
    )


def _requests(kind: ServedKind, count: int, drafter: str | None, max_tokens: int) -> list[Request]:
    return [Request(kind, number, drafter, max_tokens) for number in range(count)]


def _measure(
    address: str, kind: ServedKind, load: tuple[int, int, int], max_tokens: int
) -> dict[str, Any]:
    concurrency, count, num_pairs = load

    def answers(drafter: str | None) -> LoadRun:
        return run_load(address, concurrency, _requests(kind, count, drafter, max_tokens))

    runs = {"routed": partial(answers, None), "none": partial(answers, NONE)}
    samples = alternate(runs, num_pairs)
    ratio = paired_ratio(*(_seconds_per_token(samples[name]) for name in ("none", "routed")))
    return _row(kind.name, concurrency, samples["routed"], samples["none"], ratio)


def _seconds_per_token(samples: Sequence[Sample[LoadRun]]) -> list[float]:
    return [sample.result.seconds / sample.result.num_tokens for sample in samples]


def _row(
    kind: str,
    concurrency: int,
    routed: Sequence[Sample[LoadRun]],
    none: Sequence[Sample[LoadRun]],
    ratio: Ratio,
) -> dict[str, Any]:
    texts = [[a.token_ids for a in sample.result.answers] for sample in (*routed, *none)]
    answers, plain = _answers(routed), _answers(none)
    rounds, emitted = rounds_and_emitted([answer.usage for answer in routed[0].result.answers])
    return {
        "kind": kind,
        "concurrency": concurrency,
        "tokens": routed[0].result.num_tokens,
        "accepted_length": emitted / rounds if rounds else 0.0,
        "verified": _verified(answers),
        "routed": 1 / statistics.median(_seconds_per_token(routed)),
        "none": 1 / statistics.median(_seconds_per_token(none)),
        "ratio": ratio.median,
        "lower": ratio.lower,
        "pairs": len(routed),
        "same": all(text == texts[0] for text in texts),
        "first_ms": 1e3 * statistics.median(answer.first_s for answer in answers),
        "first_none_ms": 1e3 * statistics.median(answer.first_s for answer in plain),
        "token_ms": 1e3 * statistics.median(answer.token_s for answer in answers),
        "token_none_ms": 1e3 * statistics.median(answer.token_s for answer in plain),
        "edge_us": 1e6 * statistics.median(a.edge_s / len(a.token_ids) for a in plain),
    }


def _verified(answers: Sequence[Answer]) -> float:
    """Positions that the target computed after prefill, roots and drafts, over the tokens that
    they gave (a prefill gives the first)."""
    drafted = sum(arm.drafted for answer in answers for arm in answer.usage.arms.values())
    rounds = sum(answer.usage.rounds for answer in answers)
    return (rounds + drafted) / max(sum(len(a.token_ids) - 1 for a in answers), 1)


def _answers(samples: Sequence[Sample[LoadRun]]) -> list[Answer]:
    return [answer for sample in samples for answer in sample.result.answers]


_NOTE: Final = (
    "A closed loop: so many calls are open until all are answered. Cold: every call has a scope of "
    "its own and stores nothing. `edge`: what of a plain call was neither queue, prefill nor "
    "decoding, per token (connection, template, parsing, two event loops). AL counts plain rounds "
    "too. `verified a token`: positions that the target computed after prefill, drafts included, "
    "over the tokens that they gave; 1.00 without drafting."
)


def _highlights(rows: Sequence[dict[str, Any]]) -> tuple[Highlight, ...]:
    loops = [row for row in rows if row["kind"] == LOOP]
    worst = min(rows, key=lambda row: row["ratio"])
    found = [
        Highlight(
            what=f"server, tool loop, {row['concurrency']} at once",
            figure=f"{row['ratio']:.2f}x, AL {row['accepted_length']:.2f}",
            twin="no drafting, same server",
            setting="greedy, cold, over gRPC",
        )
        for row in loops
    ]
    least = Highlight(
        what=f"server, least of all: {worst['kind']}, {worst['concurrency']} at once",
        figure=f"{worst['ratio']:.2f}x",
        twin="no drafting, same server",
        setting="cold, over gRPC",
    )
    return (*found, least)
