"""The experiments on recorded runs as tables of a suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from whiflash.bench.replay_reference import COLUMNS, reference_rows
from whiflash.bench.suite import Column, Table
from whiflash.bench.text_replay import TextReplay

Row = dict[str, Any]
_FORCED: Final = (
    "The recorded text is forced, so no model runs: acceptance is against it, tokens are the "
    "model's. The first half of the runs warms the store and is not measured; runs of the second "
    "half enter it when they are done. `tok/round` counts all rounds, AL those that did not end a "
    "turn; wasted: draft tokens that did not come true, per token of text."
)
_REFERENCE: Final = (
    "The same runs, cut in the same halves, through a suffix tree with counts (depth 64, factor 2, "
    "edge probability from 0.1, chains of up to 32) in cl100k's tokens, measured before this index "
    "was built: another tokenizer and another rule for the length of drafts, so compare how much "
    "of the best is kept. `best`: one store, seen at once, with the run's own context."
)


def replay_tables(replay: TextReplay) -> tuple[Table, ...]:
    """Runs everything; minutes on the full data."""
    sources, silos, delays = replay.sources(), replay.silos(), replay.delays()
    found = (
        Table("replay_sources", "recorded runs: who drafts", _FORCED, _SOURCES, tuple(sources)),
        _spread("replay_silos", "recorded runs: stores that do not see each other",
                "Both sources, tokens a round. Runs are spread over so many stores at random.",
                silos),
        _spread("replay_delays", "recorded runs: seen late",
                "Both sources, tokens a round. What a run taught is seen so many runs later.",
                delays),
        reference_table(sources, silos, delays),
        Table("replay_foreign", "recorded runs: 90 % of the store from other agents",
              "Both sources. `kept`: tokens a round against the store without them.", _FOREIGN,
              tuple(replay.foreign())),
        Table("replay_rules", "recorded runs: how long drafts are",
              "Both sources, the first set. Up to 32 nodes unless it says so; chains are the "
              "likeliest path of a tree.", _RULES, tuple(replay.rules())),
    )  # fmt: skip
    return tuple(table for table in found if table.rows)


def reference_table(sources: Sequence[Row], silos: Sequence[Row], delays: Sequence[Row]) -> Table:
    """Rows of the tables above beside what was measured earlier."""
    return Table("replay_reference", "recorded runs: beside an earlier index", _REFERENCE, COLUMNS,
                 tuple(reference_rows(sources, silos, delays)))  # fmt: skip


def _spread(name: str, title: str, note: str, rows: Sequence[Row]) -> Table:
    """A column per setting."""
    keys = list(rows[0]) if rows else ["set"]
    columns = (Column("set", "set"), *(Column(key, key, ".2f") for key in keys if key != "set"))
    return Table(name, title, note, columns, tuple(rows))


def _three(name: str) -> tuple[Column, ...]:
    return (
        Column(f"{name}_tokens_per_round", f"{name}, tok/round", ".2f"),
        Column(f"{name}_accepted_length", f"{name}, AL", ".2f"),
        Column(f"{name}_wasted", f"{name}, wasted", ".2f"),
    )


_SOURCES: Final = (
    Column("set", "set"),
    Column("runs", "runs"),
    Column("target_tokens", "assistant tokens", ","),
    *(column for name in ("local", "shared", "both") for column in _three(name)),
)
_FOREIGN: Final = (
    Column("set", "set"),
    Column("foreign_runs", "foreign runs"),
    *_three("own"),
    *_three("mixed"),
    Column("kept", "kept", ".0%"),
)
_RULES: Final = (
    Column("rule", "rule"),
    Column("tokens_per_round", "tok/round", ".2f"),
    Column("accepted_length", "AL", ".2f"),
    Column("wasted", "wasted", ".2f"),
    Column("drafted", "drafted a round", ".1f"),
)
