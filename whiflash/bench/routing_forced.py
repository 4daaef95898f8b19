"""Suite `routing` on recorded agent runs: every row along the same recorded text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Final

from whiflash.bench.forced_engine import Conversation, ForcedEngine, ForcedResult
from whiflash.bench.forced_suite import Effort, decode_rate, forced_figures, forced_parts
from whiflash.bench.recordings import RecordedData, RecordedRun, RunWriter
from whiflash.bench.round_times import RoundTimes
from whiflash.bench.routing_engine import RoutingEngines
from whiflash.bench.routing_live import against_best
from whiflash.bench.routing_rows import RoutingRow
from whiflash.bench.suite import Column, Table
from whiflash.chat.format import ChatFormat
from whiflash.core.rows import NONE
from whiflash.engine.build import EngineParts

COLUMNS: Final = (
    Column("set", "recorded runs"),
    Column("store", "store"),
    Column("row", "row"),
    Column("turns", "turns"),
    Column("dropped", "turns dropped"),
    Column("tokens", "tokens", ","),
    Column("repetition", "repeated", ".0%"),
    Column("accepted_length", "AL", ".2f"),
    Column("rate", "tokens/s", ".1f"),
    Column("ratio", "ratio to none", ".2f"),
    Column("lower", "lower bound", ".2f"),
    Column("to_best", "to best static", ".2f"),
    Column("to_best_lower", "lower bound", ".2f"),
    Column("regret", "regret, offline", ".1%"),
    Column("gap", "gap closed, offline", ".0%"),
    Column("shares", "rounds by arm"),
    Column("routing", "routing", ".2%"),
    Column("catch_up", "catch-up", ".2%"),
)
_NOTE: Final = (
    "The recorded text is written whatever the model would have said, and drafts are accepted "
    "against it; decode time, prefill left out; the twin of every row is `none` along the same "
    "text, a pair is a conversation. `cold`: the store never saw the task; `repeated task`: "
    "earlier trials of it are in the store. Every row has a scope of its own and begins knowing "
    "nothing; nothing that is measured enters the store. Conversations end at the last assistant "
    "turn that fits the context or the suite's number of turns and tokens. Other columns as in the "
    "live table."
)
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RecordedEffort:
    """Conversations of each set; their most turns, and tokens (the turn that reaches them is the
    last); pairs at least (short sets are gone through several times); conversations that the survey
    follows; files: sets that are taken, None for all."""

    conversations: int
    max_turns: int
    max_tokens: int
    pairs: int
    surveyed: int
    files: tuple[str, ...] | None = None

    @property
    def of_suite(self) -> Effort:
        return Effort(
            self.conversations, self.conversations, self.max_turns, self.max_tokens, self.files
        )


@dataclass(frozen=True, slots=True)
class RecordedText:
    """Conversations of one set, and what its store was taught before."""

    set_name: str
    store: str
    told: tuple[Conversation, ...]
    known: Sequence[RecordedRun]
    dropped: int

    @property
    def category(self) -> str:
        return f"{self.set_name}, {self.store}"

    @property
    def facts(self) -> dict[str, Any]:
        """What all rows of the text share."""
        return {"category": self.category, "set": self.set_name, "store": self.store,
                "dropped": self.dropped}  # fmt: skip


def recorded_texts(
    parts: EngineParts, data: Path, chat: tuple[Path, str], effort: RecordedEffort
) -> Iterator[RecordedText]:
    """Those of `data` that the model's context holds a turn of. chat: folder and name of the
    model."""
    recorded = RecordedData(data, RunWriter(ChatFormat.for_model(*chat), parts.tokenizer))
    for part in forced_parts(recorded, effort.of_suite, parts.target.info.context_limit):
        # A turn's first token is the prefill's: turns of one token decode nothing.
        told = tuple(one for one in part.told if one.num_tokens > len(one.turns))
        dropped = sum(one.num_dropped for one in part.told)
        for store, known in part.stores.items():
            if told:
                yield RecordedText(part.name, store, told, known, dropped)


def forced_cell(
    engines: RoutingEngines, rows: Sequence[RoutingRow], text: RecordedText, num_pairs: int
) -> Rows:
    """All rows along one text, conversation by conversation in an order that turns round."""
    found: dict[str, list[ForcedResult]] = {row.name: [] for row in rows}
    follow = {row.name: _follower(engines, row, text) for row in rows}
    repeats = ceil(num_pairs / len(text.told))
    for number, one in enumerate(text.told * repeats):
        for name in follow if number % 2 == 0 else reversed(follow):
            found[name].append(follow[name](one))
    static = {row.name for row in rows if row.is_static}
    made = [_row(text, name, found) | {"is_static": name in static} for name in found]
    return list(against_best(made))


def _follower(
    engines: RoutingEngines, row: RoutingRow, text: RecordedText
) -> Callable[[Conversation], ForcedResult]:
    parts = engines.parts(row)
    engine = ForcedEngine(parts, parts.core)
    namespace = f"{text.category}, {row.name}"
    if row.reads_store:
        engine.teach(namespace, text.known)
    return partial(engine.follow, namespace=namespace, drafter=row.pinned)


def _row(
    text: RecordedText, name: str, found: Mapping[str, Sequence[ForcedResult]]
) -> dict[str, Any]:
    results = found[name]
    times = RoundTimes.sum(result.times for result in results)
    return {
        **text.facts,
        "row": name,
        "rate": decode_rate(results),
        "paces": [round(result.decode_ms / result.decoded_tokens, 4) for result in results],
        "routing": times.routing,
        "catch_up": times.catch_up,
        **forced_figures(text.told, results, found[NONE]),
    }


def survey_recorded(
    engines: RoutingEngines,
    arms: tuple[str, ...],
    texts: Sequence[RecordedText],
    num_surveyed: int,
    log: Path,
) -> Rows:
    """Logs what every arm proposes along the first conversations of each text; by category, the
    sequence numbers."""
    rows: Rows = []
    with engines.survey(arms, log) as parts:
        engine = ForcedEngine(parts, parts.core)
        for text in texts:
            engine.teach(text.category, text.known)
            told = [engine.follow(one, text.category) for one in text.told[:num_surveyed]]
            numbers = [number for result in told for number in result.sequences]
            rows.append({"category": text.category, "numbers": numbers})
    return rows


def forced_table(rows: Sequence[dict[str, Any]]) -> Table:
    return Table("forced", "Recorded agent runs, text forced", _NOTE, COLUMNS, tuple(rows))
