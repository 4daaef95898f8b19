"""The experiments on recorded runs as tables of a suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from whiflash.bench.suite import Column, Table
from whiflash.bench.text_replay import TextReplay

Row = dict[str, Any]
_FORCED: Final = (
    "The recorded text is forced, so no model runs: acceptance is against it, tokens are the "
    "model's. The first half of the runs warms the store and is not measured; runs of the second "
    "half enter it when they are done. `tok/round` counts all rounds, AL those that did not end a "
    "turn; wasted: draft tokens that did not come true, per token of text."
)


def replay_tables(replay: TextReplay) -> tuple[Table, ...]:
    """Runs everything; minutes on the full data."""
    found = (
        Table("replay_sources", "recorded runs: who drafts", _FORCED, _SOURCES,
              tuple(replay.sources())),
        _spread("replay_silos", "recorded runs: stores that do not see each other",
                "Both sources, tokens a round. Runs are spread over so many stores at random.",
                replay.silos()),
        _spread("replay_delays", "recorded runs: seen late",
                "Both sources, tokens a round. What a run taught is seen so many runs later.",
                replay.delays()),
        Table("replay_foreign", "recorded runs: 90 % of the store from other agents",
              "Both sources. `kept`: tokens a round against the store without them.", _FOREIGN,
              tuple(replay.foreign())),
        Table("replay_rules", "recorded runs: how long drafts are",
              "Both sources, the first set. Up to 32 nodes unless it says so; chains are the "
              "likeliest path of a tree.", _RULES, tuple(replay.rules())),
    )  # fmt: skip
    return tuple(table for table in found if table.rows)


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
