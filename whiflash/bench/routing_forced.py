"""Suite `routing` on recorded agent runs: each arm and goodput along the same recorded text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from whiflash.bench.forced_engine import Conversation, ForcedEngine, ForcedResult
from whiflash.bench.forced_suite import Effort, decode_rate, forced_figures, forced_parts
from whiflash.bench.recordings import RecordedData, RunWriter
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
    Column("shares", "rounds by arm"),
)
_NOTE: Final = (
    "The recorded text is written whatever the model would have said, and drafts are accepted "
    "against it; decode time, prefill left out; the twin of every row is `none` along the same "
    "text. `cold`: the store never saw the task; `repeated task`: earlier trials of it are in the "
    "store. Conversations end at the last assistant turn that fits the context, or at the suite's "
    "number of turns."
)
Measure = Callable[[], list[dict[str, Any]]]


def forced_cells(
    parts: EngineParts,
    data: Path,
    chat: tuple[Path, str],
    rows: Sequence[RoutingRow],
    conversations: int,
    max_turns: int,
) -> Iterator[tuple[str, Measure]]:
    """A cell per recorded set and store. chat: folder and name of the model. rows: of one engine,
    `none` first."""
    recorded = RecordedData(data, RunWriter(ChatFormat.for_model(*chat), parts.tokenizer))
    engine = ForcedEngine(parts, parts.core)
    effort = Effort(conversations, 1, max_turns)
    for part in forced_parts(recorded, effort, parts.target.info.context_limit):
        told = [one for one in part.told if one.turns]
        if not told:
            continue
        dropped = sum(one.num_dropped for one in part.told)
        for store, known in part.stores.items():
            namespace = f"routing, {part.name}, {store}"
            engine.teach(namespace, known)
            facts = {"set": part.name, "store": store, "dropped": dropped}
            yield f"{part.name}, {store}", partial(_cell, engine, facts, namespace, told, rows)


def _cell(
    engine: ForcedEngine,
    facts: dict[str, Any],
    namespace: str,
    told: Sequence[Conversation],
    rows: Sequence[RoutingRow],
) -> list[dict[str, Any]]:
    found: dict[str, list[ForcedResult]] = {row.name: [] for row in rows}
    for number, one in enumerate(told):
        for row in rows if number % 2 == 0 else list(rows)[::-1]:
            found[row.name].append(engine.follow(one, namespace, row.pinned))
    return [
        {
            **facts,
            "row": name,
            "rate": decode_rate(results),
            **forced_figures(told, results, found[NONE]),
        }
        for name, results in found.items()
    ]


def forced_table(rows: Sequence[dict[str, Any]]) -> Table:
    return Table("forced", "Recorded agent runs, text forced", _NOTE, COLUMNS, tuple(rows))
