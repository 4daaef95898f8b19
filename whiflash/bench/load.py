"""Suite `core`: routed against `none` when many sequences share each forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from whiflash.bench.drafting import accepted_length
from whiflash.bench.prompts import BenchPrompt
from whiflash.bench.runs import cold_request, run_closed_loop
from whiflash.bench.suite import Column, Table
from whiflash.bench.timing import Ratio, alternate, paired_ratio
from whiflash.core.results import Completion
from whiflash.core.rows import NONE
from whiflash.engine.engine import Engine

COLUMNS: Final = (
    Column("what", "workload"),
    Column("tokens", "tokens"),
    Column("accepted_length", "AL", ".2f"),
    Column("routed", "routed, tokens/s", ".1f"),
    Column("none", "none, tokens/s", ".1f"),
    Column("ratio", "ratio", ".2f"),
    Column("lower", "lower bound", ".2f"),
    Column("same", "same text"),
)


CONCURRENCY: Final = 8
_PASSES: Final = 3


def measure_load(
    engine: Engine,
    prompts: Sequence[BenchPrompt],
    encoded: Sequence[tuple[int, ...]],
    num_repeats: int,
    note: str,
) -> tuple[Table, Ratio]:
    """Every prompt `_PASSES` times, `CONCURRENCY` at once: a server that is never short of work,
    so that the longest answer does not decide the time of all."""
    # Each pass starts elsewhere, or the same kinds would always run beside each other.
    order = [
        (first + step) % len(prompts) for first in range(_PASSES) for step in range(len(prompts))
    ]

    def run(drafter: str | None) -> list[Completion]:
        requests = [cold_request(encoded[i], prompts[i].max_tokens, drafter) for i in order]
        return run_closed_loop(engine, CONCURRENCY, requests)

    samples = alternate({"routed": lambda: run(None), "none": lambda: run(NONE)}, num_repeats)
    seconds = {name: [sample.seconds for sample in runs] for name, runs in samples.items()}
    ratio = paired_ratio(seconds["none"], seconds["routed"])
    answers = [[c.token_ids for c in s.result] for runs in samples.values() for s in runs]
    num_tokens = sum(len(ids) for ids in answers[0])
    row: dict[str, Any] = {
        "what": f"{len(order)} requests of all kinds, {CONCURRENCY} at once",
        "tokens": num_tokens,
        "accepted_length": accepted_length([c.usage for c in samples["routed"][0].result]),
        "ratio": ratio.median,
        "lower": ratio.lower,
        "same": all(answer == answers[0] for answer in answers),
    }
    row |= {name: num_tokens * len(times) / sum(times) for name, times in seconds.items()}
    return Table("load", "Drafting under load", note, COLUMNS, (row,)), ratio
