"""Suite `core`: the embedded engine on one machine, each figure with its twin from the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from whiflash.bench.drafting import measure_drafting
from whiflash.bench.load import CONCURRENCY, measure_load
from whiflash.bench.plain import BATCH, PlainEffort, PlainResult, measure_plain
from whiflash.bench.progress import say
from whiflash.bench.prompts import KINDS, BenchPrompt, all_prompts
from whiflash.bench.runs import CACHE_STATE, cold_request, encode, run_once
from whiflash.bench.suite import Highlight, SuiteOptions, SuiteResult, Table
from whiflash.bench.timing import Ratio
from whiflash.bench.transformers_twin import LOOKUP_TOKENS, TransformersTwin, faster_dtype
from whiflash.bench.verify_curve import measure_curve
from whiflash.engine.engine import Engine
from whiflash.target.load import load_target


@dataclass(frozen=True, slots=True)
class Effort:
    """How often and how long things are measured."""

    plain: PlainEffort
    num_repeats: int
    curve_repeats: int
    load_repeats: int
    dtype_tokens: int
    dtype_repeats: int
    prompts_per_kind: int
    max_tokens: int | None = None


FULL: Final = Effort(PlainEffort(3, 96, 2, 5), 2, 15, 5, 16, 2, 3)
QUICK: Final = Effort(PlainEffort(1, 8, 1, 1), 1, 2, 1, 4, 1, 1, 16)


def run(options: SuiteOptions) -> SuiteResult:
    """About twelve minutes on two cores; `is_quick` about one."""
    effort = QUICK if options.is_quick else FULL
    prompts = chosen_prompts(effort)
    with Engine(model=options.model) as engine:
        plan = engine.plan()
        encoded = encode(engine, prompts)
        run_once(engine, cold_request(encoded[0], 8, None))  # what is compiled on first use
        twins, dtypes = _twins(engine, encoded, effort)
        note = _arrival_note()
        say("no drafting, against transformers")
        plain = measure_plain(engine, *twins, encoded, effort.plain, note)
        say("routed drafting by kind of text")
        drafting, ratios = measure_drafting(
            engine, twins[0], prompts, encoded, effort.num_repeats, _drafting_note(twins[0])
        )
        say("drafting under load")
        for twin in set(twins):
            twin.close()
        load, loaded = _load(engine, prompts, encoded, effort)
    say("the verify curve")
    target = load_target(options.model).target
    curve = measure_curve(target, _long_text(encoded), effort.curve_repeats)
    return SuiteResult(
        title="the embedded engine on one machine",
        setting=_setting(options.model, plan, dtypes),
        tables=(plain.table, curve, drafting, load),
        highlights=_highlights(plain, drafting, ratios, loaded),
        plan=plan,
    )


def chosen_prompts(effort: Effort) -> list[BenchPrompt]:
    """The first prompts of each kind, answers cut to the effort's length."""
    chosen = []
    for kind in KINDS:
        of_kind = [prompt for prompt in all_prompts() if prompt.kind == kind]
        chosen += of_kind[: effort.prompts_per_kind]
    limit = effort.max_tokens
    if limit is None:
        return chosen
    return [replace(p, max_tokens=min(p.max_tokens, limit)) for p in chosen]


def _twins(
    engine: Engine, encoded: Sequence[tuple[int, ...]], effort: Effort
) -> tuple[tuple[TransformersTwin, TransformersTwin], dict[str, Any]]:
    """transformers in its faster dtype, for one row and for a batch."""
    say("the faster dtype of transformers")
    sizes = (effort.dtype_tokens, effort.dtype_repeats)
    single, single_s = faster_dtype(engine.model_folder, encoded[:1], *sizes)
    batch, batch_s = faster_dtype(engine.model_folder, encoded[:BATCH], *sizes)
    if batch.dtype == single.dtype:
        batch.close()
        batch = single
    return (single, batch), {"batch 1": single_s, f"batch {BATCH}": batch_s}


def _load(
    engine: Engine,
    prompts: Sequence[BenchPrompt],
    encoded: Sequence[tuple[int, ...]],
    effort: Effort,
) -> tuple[Table, Ratio]:
    # Every second prompt: all kinds, at most eight.
    order = list(range(0, len(prompts), 2))[:BATCH]
    note = f"Greedy, whole runs with prefill. {CACHE_STATE}."
    picked = [prompts[i] for i in order]
    return measure_load(engine, picked, [encoded[i] for i in order], effort.load_repeats, note)


def _long_text(encoded: Sequence[tuple[int, ...]]) -> list[int]:
    return [token for ids in encoded for token in ids]


def _arrival_note() -> str:
    return (
        "Tokens per second of whole calls. At batch 8 the twin runs, whenever it is free, all "
        "requests that wait as one left-padded `generate` batch."
    )


def _drafting_note(twin: TransformersTwin) -> str:
    return (
        "Greedy, one request at a time, whole calls with prefill, three prompts a kind; `routed` "
        f"is policy goodput over retrieval. Cache state: {CACHE_STATE}. The twin is transformers "
        f"in {twin.dtype} with and without prompt_lookup_num_tokens={LOOKUP_TOKENS}. `repeated`: "
        "tokens inside 8-grams seen before in the same answer; `copied`: inside 8-grams of the "
        "prompt. AL counts plain rounds too."
    )


def _setting(model: str, plan: dict[str, Any], dtypes: dict[str, Any]) -> dict[str, Any]:
    target = plan["target"]
    tried = "; ".join(
        f"{what}: " + ", ".join(f"{dtype} {seconds:.2f} s" for dtype, seconds in times.items())
        for what, times in dtypes.items()
    )
    return {
        "model": model,
        "ours": f"{target['dtype']}, {target['attention']} attention, {target['linears']} linears, "
        f"{target['exactness']}",
        "transformers' dtypes as tried": tried,
        "concurrency": "1 where a table does not say otherwise",
        "cache state": CACHE_STATE,
    }


def _highlights(
    plain: PlainResult, drafting: Table, ratios: dict[str, Ratio], loaded: Ratio
) -> tuple[Highlight, ...]:
    rows = {row["kind"]: row for row in drafting.rows}
    found = [
        Highlight("no drafting, one request", f"{plain.single.median:.2f}x",
                  "transformers `generate`", "greedy"),
        Highlight(f"no drafting, {BATCH} ragged requests", f"{plain.batched.median:.2f}x",
                  "`generate` on all that wait", "greedy"),
    ]  # fmt: skip
    found += [_of_kind(rows[kind], ratio) for kind, ratio in ratios.items()]
    under_load = Highlight(
        what=f"drafting, {CONCURRENCY} mixed requests at once",
        figure=f"{loaded.median:.2f}x",
        twin="no drafting",
        setting="greedy, cold",
    )
    return (*found, under_load)


def _of_kind(row: dict[str, Any], ratio: Ratio) -> Highlight:
    same = "same text" if row["same"] else "**not the same text**"
    return Highlight(
        what=f"drafting, {row['kind']}",
        figure=f"{ratio.median:.2f}x, AL {row['accepted_length']:.2f}",
        twin=f"no drafting, {same}; {row['against_lookup']:.2f}x of transformers' prompt lookup",
        setting=f"greedy, cold, {row['repetition']:.0%} repeated",
    )
