"""Suite `store`: how soon, how much and how privately earlier runs are drafted from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whiflash.bench.demo_runs import demo_table, pass_of, run_demo
from whiflash.bench.index_measure import IndexFigures, measure_index
from whiflash.bench.isolation import isolation_table
from whiflash.bench.progress import say
from whiflash.bench.redis_process import RedisAddress, redis_server
from whiflash.bench.replay_tables import replay_tables
from whiflash.bench.store_paths import loading_rows, visible_rows
from whiflash.bench.suite import Column, Highlight, SuiteOptions, SuiteResult, Table
from whiflash.bench.text_replay import FULL as FULL_REPLAY
from whiflash.bench.text_replay import QUICK as QUICK_REPLAY
from whiflash.bench.text_replay import ReplaySizes, open_replay
from whiflash.chat.format import ChatFormat
from whiflash.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured. demo: more arguments of `whiflash demo`; has_shared_demo: it is run
    over Redis too."""

    num_turns: int
    loaded_tokens: int
    index_tokens: tuple[int, ...]
    num_trials: int
    trial_tokens: int
    replay: ReplaySizes
    demo: tuple[str, ...] = ()
    has_shared_demo: bool = True


FULL: Final = Effort(500, 10_000_000, (1_000_000, 10_000_000), 12, 32, FULL_REPLAY)
_SHORT_DEMO: Final = ("--kind", "tickets", "--turns", "1")
QUICK: Final = Effort(20, 50_000, (20_480,), 1, 16, QUICK_REPLAY, _SHORT_DEMO, False)


def run(options: SuiteOptions) -> SuiteResult:
    """About fifteen minutes on two cores; `is_quick` about one."""
    effort = QUICK if options.is_quick else FULL
    tables: list[Table] = []
    with ExitStack() as servers:
        redis = servers.enter_context(redis_server())
        with Engine(model=options.model) as engine:
            plan = engine.plan()
            tables += _engine_tables(engine, redis, effort)
        say("the index")
        tables.append(index_table([measure_index(count) for count in effort.index_tokens]))
        say("loading a store")
        tables.append(loading_table(loading_rows(redis, effort.loaded_tokens)))
        if options.data is not None:
            tables += _replayed(options.model, options.data, effort)
        say("the demo over a file store")
        dtype = ("--dtype", plan["target"]["dtype"])
        live = run_demo(options.model, *dtype, *effort.demo)
        tables.append(demo_table("over a file store", live))
        if redis is not None and effort.has_shared_demo:
            say("the demo over Redis")
            shared = run_demo(options.model, *dtype, "--redis", redis.url, *effort.demo)
            tables.append(demo_table("over Redis", shared))
    return SuiteResult(
        title="what one run teaches, others draft, also after a restart",
        setting=_setting(options, plan, redis),
        tables=tuple(tables),
        highlights=tuple(_highlights(live, tables)),
        plan=plan,
    )


def _engine_tables(engine: Engine, redis: RedisAddress | None, effort: Effort) -> Iterator[Table]:
    say("append to visible")
    yield visible_table(visible_rows(engine.tokenizer, redis, effort.num_turns))
    say("isolation by the clock")
    yield isolation_table(engine, _render(engine), effort.num_trials, effort.trial_tokens)


def _render(engine: Engine) -> Callable[[str], str]:
    chat = ChatFormat.for_model(engine.model_folder, engine.model_name)
    return lambda text: chat.render([{"role": "user", "content": text}])


def _replayed(model: str, data: Path, effort: Effort) -> tuple[Table, ...]:
    return replay_tables(open_replay(model, data, effort.replay, say))


def visible_table(rows: list[dict[str, Any]]) -> Table:
    """How soon a turn is seen."""
    columns = (
        Column("store", "store"),
        Column("p50_ms", "p50, ms", ".2f"),
        Column("p99_ms", "p99, ms", ".2f"),
        Column("turns", "turns"),
    )
    note = (
        "From the end of a turn of 64 tokens until it can be drafted from: searched for secrets, "
        "written, read, indexed. Turns 3 ms apart."
    )
    return Table("visible", "append to visible", note, columns, tuple(rows))


def index_table(figures: Sequence[IndexFigures]) -> Table:
    """What the index costs, by size."""
    columns = (
        Column("num_tokens", "tokens", ","),
        Column("sealed_tokens", "of them sealed", ","),
        Column("build_tokens_per_s", "built, tokens/s", ",.0f"),
        Column("live_bytes_per_token", "live, B/token", ".1f"),
        Column("sealed_bytes_per_token", "sealed, B/token", ".1f"),
        Column("lookup_p50_us", "lookup p50, us a row", ".1f"),
        Column("lookup_p99_us", "p99", ".1f"),
        Column("matched_tokens", "matched", ".1f"),
        Column("gil_free_share", "free of the GIL", ".2f"),
    )
    note = (
        "A whole lookup of a batch of 32 sequences, own context and Python included, by row. "
        "`free of the GIL`: how much of a long lookup another thread can run Python in; half "
        "where two threads share a core."
    )
    rows = tuple(one.record() for one in figures)
    return Table("index", "the index of earlier runs", note, columns, rows)


def loading_table(rows: list[dict[str, Any]]) -> Table:
    """How long a new process needs, and what a token takes."""
    columns = (
        Column("store", "store"),
        Column("tokens", "tokens", ","),
        Column("load_s", "load, s", ".1f"),
        Column("rate", "tokens/s", ",.0f"),
        Column("write_s", "write, s", ".1f"),
        Column("stored_bytes", "stored, B/token", ".2f"),
        Column("seal_s", "sealed after, s", ".1f"),
        Column("live_bytes", "live, B/token", ".1f"),
        Column("sealed_bytes", "sealed, B/token", ".1f"),
    )
    note = (
        "A new process until all of the namespace can be drafted from; meanwhile it serves. What "
        "the live tier has no room for (160 MiB) is sealed on another thread. Text made of "
        "phrases that come again, in records of 512 tokens."
    )
    return Table("loading", "loading a store at the start", note, columns, tuple(rows))


def _setting(
    options: SuiteOptions, plan: Mapping[str, Any], redis: RedisAddress | None
) -> dict[str, Any]:
    target = plan["target"]
    return {
        "model": options.model,
        "ours": f"{target['dtype']}, {target['exactness']}, policy {plan['policy']}",
        "concurrency": "1",
        "Redis": "redis-server on a unix socket of this machine, nothing on disk"
        if redis is not None
        else "not measured: install the package redis-server and whiflash[redis]",
        "recorded runs": "not measured: no --data" if options.data is None else "as in --data",
    }


def _highlights(live: Mapping[str, Any], tables: list[Table]) -> Iterator[Highlight]:
    warm, cold = pass_of(live, ("after_restart",)), pass_of(live, ("cold",))
    if warm is not None and cold is not None:
        same = "same text" if live["same_text"] else "**not the same text**"
        yield Highlight(
            "agent sessions after a restart, other fillings than those stored",
            f"{warm['ratio']:.2f}x, AL {warm['accepted_length']:.2f}",
            f"no drafting, {same}; {cold['ratio']:.2f}x, AL {cold['accepted_length']:.2f} with an "
            "empty store",
            "greedy, decode time, file store",
        )
    sources = next((table for table in tables if table.name == "replay_sources"), None)
    if sources is not None:
        row = sources.rows[0]
        yield Highlight(
            f"recorded runs, {row['set']}",
            f"{row['both_tokens_per_round']:.2f} tokens a round",
            f"{row['local_tokens_per_round']:.2f} without a store",
            "text forced, tokens of the model",
        )
