"""Suite `forced` (`whiflash bench --forced --data FOLDER`): real forwards over recorded agent runs,
with a store that never saw the task, and one that saw earlier trials of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from whiflash.bench.checkpoints import neural_folders
from whiflash.bench.drafting import rounds_and_emitted
from whiflash.bench.forced_engine import (
    Conversation,
    ForcedEngine,
    ForcedResult,
    ForcedTurn,
    conversation,
)
from whiflash.bench.progress import say
from whiflash.bench.recordings import RecordedData, RecordedRun, RecordedSet, RunWriter
from whiflash.bench.repetition import repeated_share
from whiflash.bench.suite import Column, Highlight, SuiteOptions, SuiteResult, Table
from whiflash.bench.timing import paired_ratio
from whiflash.chat.format import ChatFormat
from whiflash.config import EngineConfig
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE
from whiflash.engine.build import EngineParts, build_parts
from whiflash.models.sources import resolve

COLD, REPEATED = "cold", "repeated task"
_HELD_OUT: Final = 5  # tasks whose number leaves 4 are measured and, when cold, not in the store

COLUMNS: Final = (
    Column("set", "recorded runs"),
    Column("store", "store"),
    Column("runs", "runs"),
    Column("turns", "turns"),
    Column("dropped", "turns dropped"),
    Column("tokens", "tokens", ","),
    Column("repetition", "repeated", ".0%"),
    Column("agreed", "target's argmax", ".0%"),
    Column("accepted_length", "AL", ".2f"),
    Column("routed", "routed, tokens/s", ".1f"),
    Column("none", "none, tokens/s", ".1f"),
    Column("ratio", "ratio", ".2f"),
    Column("lower", "lower bound", ".2f"),
    Column("shares", "rounds by arm"),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """Conversations measured of the sets in their order, and most turns of each; it ends with
    the turn that reaches max_tokens; files: sets that are taken, None for all."""

    measured: int
    measured_long: int
    max_turns: int | None
    max_tokens: int | None = None
    files: tuple[str, ...] | None = None


FULL: Final = Effort(5, 3, None)
QUICK: Final = Effort(1, 1, 2)
_LONG: Final = ("swe_agent", "intercode")


@dataclass(frozen=True, slots=True)
class Part:
    """A set's measured conversations, and by store what it was taught before."""

    name: str
    told: tuple[Conversation, ...]
    stores: dict[str, list[RecordedRun]]


def run(options: SuiteOptions) -> SuiteResult:
    """About half an hour on two cores; `is_quick` about two minutes."""
    if options.data is None:
        raise ConfigError("the suite forced needs --data FOLDER with recorded runs")
    effort = QUICK if options.is_quick else FULL
    folders = neural_folders(options.model, options.drafters)
    named = ("retrieval", *(f"{kind}:{place}" for kind, place in sorted(folders.items())))
    path = resolve(options.model)
    with closing(build_parts(EngineConfig.of(model=options.model, drafters=named))) as parts:
        writer = RunWriter(ChatFormat.for_model(path, options.model), parts.tokenizer)
        data = RecordedData(options.data, writer)
        rows = list(_rows(parts, data, effort))
        target = parts.target.info
        setting = {
            "model": f"{options.model}, {target.dtype}, {target.exactness}",
            "arms": ", ".join((*sorted(folders), "retrieval"))
            + "".join(f"; no {k} drafter" for k in ("eagle3", "dflash") if k not in folders),
            "policy": "goodput, at first knowing nothing of the scope",
        }
    return SuiteResult(
        title="recorded agent runs, written again by real forwards",
        setting=setting,
        tables=(Table("forced", "Text forced", _NOTE, COLUMNS, tuple(rows)),),
        highlights=tuple(_highlights(rows)),
    )


def forced_parts(data: RecordedData, effort: Effort, context_limit: int) -> Iterator[Part]:
    """Every file (of those wanted) once. Sets with several trials of a task measure the last one's
    held-out tasks, cold and repeated; others have no repeated task."""
    seen: set[str] = set()
    for which in data.sets:
        is_wanted = effort.files is None or which.file in effort.files
        if which.file not in seen and is_wanted:
            seen.add(which.file)
            yield _part(which, data.runs(which), effort, context_limit)


def _part(which: RecordedSet, runs: Sequence[RecordedRun], effort: Effort, limit: int) -> Part:
    number = effort.measured_long if which.file in _LONG else effort.measured
    if which.file == "tau_bench_airline":
        placed = [(run, *_task_and_trial(run)) for run in runs]
        last = max(trial for _, _, trial in placed)
        held = [run for run, task, trial in placed if trial == last and _is_held(task)]
        stores = {
            COLD: [run for run, task, trial in placed if trial < last and not _is_held(task)],
            REPEATED: [run for run, _, trial in placed if trial < last],
        }
    else:
        held = [run for place, run in enumerate(runs) if _is_held(place)]
        stores = {COLD: [run for place, run in enumerate(runs) if not _is_held(place)]}
    told = [conversation(run, limit) for run in held[:number]]
    return Part(which.name, tuple(_cut(one, effort) for one in told), stores)


def _is_held(number: int) -> bool:
    return number % _HELD_OUT == _HELD_OUT - 1


def _task_and_trial(run: RecordedRun) -> tuple[int, int]:
    _, task, trial = run.run_id.split("/")
    return int(task), int(trial)


def _cut(told: Conversation, effort: Effort) -> Conversation:
    kept: list[ForcedTurn] = []
    tokens = 0
    for turn in told.turns[: effort.max_turns]:
        kept.append(turn)
        tokens += len(turn.answer)
        if effort.max_tokens is not None and tokens >= effort.max_tokens:
            break
    dropped = told.num_dropped + len(told.turns) - len(kept)
    return Conversation(told.run_id, tuple(kept), dropped)


def _rows(parts: EngineParts, data: RecordedData, effort: Effort) -> Iterator[dict[str, Any]]:
    engine = ForcedEngine(parts, parts.core)
    for part in forced_parts(data, effort, parts.target.info.context_limit):
        told = [one for one in part.told if one.turns]
        if not told:
            say(f"{part.name}: no turn fits the context")
            continue
        for store, known in part.stores.items():
            engine.teach(f"{part.name}, {store}", known)
        found: dict[str, list[ForcedResult]] = {}
        for number, one in enumerate(told, 1):
            say(f"{part.name}: {number} of {len(told)}, {one.num_tokens} tokens")
            names = [NONE, *part.stores]
            for name in names if number % 2 else names[::-1]:
                namespace = f"{part.name}, {COLD if name == NONE else name}"
                drafter = NONE if name == NONE else None
                found.setdefault(name, []).append(engine.follow(one, namespace, drafter))
        for store in part.stores:
            yield _row(part, told, store, found[store], found[NONE])


def _row(
    part: Part,
    told: Sequence[Conversation],
    store: str,
    routed: Sequence[ForcedResult],
    plain: Sequence[ForcedResult],
) -> dict[str, Any]:
    return {
        "set": part.name,
        "store": store,
        "runs": len(told),
        "dropped": sum(one.num_dropped for one in part.told),
        "agreed": sum(r.num_agreed for r in plain) / max(sum(r.num_asked for r in plain), 1),
        "routed": decode_rate(routed),
        "none": decode_rate(plain),
        **forced_figures(told, routed, plain),
    }


def forced_figures(
    told: Sequence[Conversation], drafted: Sequence[ForcedResult], plain: Sequence[ForcedResult]
) -> dict[str, Any]:
    """What every table of forced text says: of the text, of the drafts, and against `none`."""
    ratio = paired_ratio([r.decode_ms for r in plain], [r.decode_ms for r in drafted])
    usages = [usage for result in drafted for usage in result.usages]
    rounds, emitted = rounds_and_emitted(usages)
    tokens = sum(one.num_tokens for one in told)
    repeated = sum(repeated_share(one.answers) * one.num_tokens for one in told)
    return {
        "turns": sum(len(one.turns) for one in told),
        "tokens": tokens,
        "repetition": repeated / tokens,
        "accepted_length": emitted / rounds if rounds else None,
        "ratio": ratio.median,
        "lower": ratio.lower,
        "shares": arm_shares(usages),
    }


def decode_rate(results: Sequence[ForcedResult]) -> float:
    """Tokens per second."""
    return 1e3 * sum(r.decoded_tokens for r in results) / sum(r.decode_ms for r in results)


def arm_shares(usages: Sequence[Any]) -> str:
    """Rounds of each arm that did not end a turn, like "none 40 %, retrieval 60 %"."""
    counts: dict[str, int] = {}
    for usage in usages:
        for arm, used in usage.arms.items():
            counts[arm] = counts.get(arm, 0) + used.rounds
    total = max(sum(counts.values()), 1)
    return ", ".join(f"{arm} {count / total:.0%}" for arm, count in sorted(counts.items()))


_NOTE: Final = (
    "The recorded assistant turns are written whatever the model would have said, and drafts are "
    "accepted against them; `target's argmax`: how often it would have said the same. Decode time, "
    "prefill left out. Conversations end at the last assistant turn that fits the context. "
    "tau-bench: the last trial of every fifth task; `cold`: the store holds earlier trials of the "
    "other tasks, `repeated task`: of these too. Other sets have no trials: every fifth run, the "
    "store holding the rest. Nothing that is measured enters the store."
)


def _highlights(rows: Sequence[dict[str, Any]]) -> Iterator[Highlight]:
    for row in rows:
        if row["set"].startswith("tau-bench"):
            yield Highlight(
                what=f"recorded agent runs, {row['store']}: {row['set'].partition(',')[0]}",
                figure=f"{row['ratio']:.2f}x, AL {row['accepted_length']:.2f}",
                twin="no drafting, the same text",
                setting=f"text forced, real forwards, decode time, {row['repetition']:.0%} "
                "repeated",
            )
