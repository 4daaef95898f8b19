"""Suite `core`: the engine without drafting against transformers' `generate`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from whiflash.bench.runs import cold_request, run_arrivals, run_once
from whiflash.bench.suite import Column, Table
from whiflash.bench.timing import Ratio, alternate, paired_ratio
from whiflash.bench.transformers_twin import TransformersTwin
from whiflash.core.results import Completion
from whiflash.core.rows import NONE
from whiflash.engine.engine import Engine

BATCH: Final = 8
_BUDGETS: Final = (24, 72, 40, 96, 32, 64, 48, 80)
_GAP_S: Final = 0.25

COLUMNS: Final = (
    Column("what", "workload"),
    Column("ours", "ours, tokens/s", ".1f"),
    Column("twin", "transformers, tokens/s", ".1f"),
    Column("twin_dtype", "its dtype"),
    Column("ratio", "ratio", ".2f"),
    Column("lower", "lower bound", ".2f"),
    Column("pairs", "pairs"),
)


@dataclass(frozen=True, slots=True)
class PlainEffort:
    """How much is run. `num_tokens` is the length of the single answers; the budgets of a batch
    are cut to it."""

    num_prompts: int
    num_tokens: int
    single_repeats: int
    batch_repeats: int


@dataclass(frozen=True, slots=True)
class PlainResult:
    """The table, and the ratios that the highlights quote."""

    table: Table
    single: Ratio
    batched: Ratio


def measure_plain(
    engine: Engine,
    single_twin: TransformersTwin,
    batch_twin: TransformersTwin,
    prompts: Sequence[tuple[int, ...]],
    effort: PlainEffort,
    note: str,
) -> PlainResult:
    """Both workloads; answers run to their full length on both sides (end token ignored)."""
    single_row, single = _single(engine, single_twin, prompts[: effort.num_prompts], effort)
    batch_row, batched = _arrivals(engine, batch_twin, prompts[:BATCH], effort)
    table = Table(
        "plain", "No drafting, against transformers", note, COLUMNS, (single_row, batch_row)
    )
    return PlainResult(table, single, batched)


def _single(
    engine: Engine,
    twin: TransformersTwin,
    prompts: Sequence[tuple[int, ...]],
    effort: PlainEffort,
) -> tuple[dict[str, Any], Ratio]:
    num_tokens = effort.num_tokens
    ours: list[float] = []
    theirs: list[float] = []
    for ids in prompts:
        runs: dict[str, Callable[[], object]] = {
            "ours": partial(_ours_alone, engine, ids, num_tokens),
            "twin": partial(twin.generate, ids, num_tokens, ignore_eos=True),
        }
        samples = alternate(runs, effort.single_repeats)
        ours += [sample.seconds for sample in samples["ours"]]
        theirs += [sample.seconds for sample in samples["twin"]]
    what = f"batch 1: {len(prompts)} prompts, {num_tokens} tokens each, prefill included"
    return _row(what, num_tokens, ours, theirs, twin.dtype)


def _ours_alone(engine: Engine, ids: tuple[int, ...], num_tokens: int) -> Completion:
    return run_once(engine, cold_request(ids, num_tokens, NONE, ignore_eos=True))


def _arrivals(
    engine: Engine,
    twin: TransformersTwin,
    prompts: Sequence[tuple[int, ...]],
    effort: PlainEffort,
) -> tuple[dict[str, Any], Ratio]:
    times = [_GAP_S * number for number in range(len(prompts))]
    budgets = [min(count, effort.num_tokens) for count in _BUDGETS[: len(prompts)]]
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: run_arrivals(
            engine, times, lambda i: cold_request(prompts[i], budgets[i], NONE, ignore_eos=True)
        ),
        "twin": lambda: static_batches(twin, times, prompts, budgets),
    }
    samples = alternate(runs, effort.batch_repeats)
    seconds = {name: [sample.seconds for sample in runs] for name, runs in samples.items()}
    what = (
        f"batch {len(prompts)}: a request every {_GAP_S} s, {min(budgets)} to {max(budgets)} "
        "tokens each, until the last is done"
    )
    return _row(what, sum(budgets), seconds["ours"], seconds["twin"], twin.dtype)


def static_batches(
    twin: TransformersTwin,
    arrivals_s: Sequence[float],
    prompts: Sequence[tuple[int, ...]],
    budgets: Sequence[int],
) -> int:
    """A server around `generate`: whenever it is free it runs all that wait as one batch, for as
    many tokens as the longest of them wants. Returns the number of batches."""
    start = time.perf_counter()
    done = batches = 0
    while done < len(prompts):
        time.sleep(max(0.0, start + arrivals_s[done] - time.perf_counter()))
        now = time.perf_counter() - start
        ready = sum(arrival <= now for arrival in arrivals_s)
        waiting = slice(done, max(ready, done + 1))
        twin.generate_batch(prompts[waiting], max(budgets[waiting]), ignore_eos=True)
        done, batches = waiting.stop, batches + 1
    return batches


def _row(
    what: str, num_tokens: int, ours: Sequence[float], theirs: Sequence[float], dtype: str
) -> tuple[dict[str, Any], Ratio]:
    ratio = paired_ratio(theirs, ours)
    record: Mapping[str, Any] = ratio.record()
    row = {
        "what": what,
        "ours": num_tokens * len(ours) / sum(ours),
        "twin": num_tokens * len(theirs) / sum(theirs),
        "twin_dtype": dtype,
        "ratio": record["median"],
        "lower": record["lower"],
        "pairs": record["pairs"],
    }
    return row, ratio
