"""`whiflash replay text`: what a shared store would have saved on recorded agent runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from whiflash.cli import options
from whiflash.core.errors import ConfigError

Data = Annotated[
    Path | None,
    typer.Option("--data", help="folder of recorded runs: files as `whiflash store import` reads"),
]
Quick = Annotated[bool, typer.Option("--quick", help="the first runs alone, to see that it works")]
DEFAULT_MODEL = "smollm2-135m"
MEASURED = ("sources", "silos", "delays", "foreign", "rules")
HEADINGS = {
    "sources": "where drafts come from: the run's own context, earlier runs, both",
    "silos": "tokens a round, runs spread over stores that do not see each other",
    "delays": "tokens a round, what a run taught being seen so many runs later",
    "foreign": "90 % of the store from other agents",
    "reference": "beside an earlier index (suffix tree, cl100k's tokens) on the same runs",
    "rules": "how long drafts are: a learned cut against fixed rules",
}


def text(
    data: Data = None,
    model: options.Model = None,
    quick: Quick = False,
    as_json: options.Json = False,
) -> None:
    """Draft along recorded agent runs: how many tokens a round, how many drafts wasted, with and
    without a store. The recorded text is what is accepted: no model runs, its tokenizer and chat
    template alone are read. The first half of a set's runs only warms the store."""
    from whiflash.bench.replay_reference import reference_rows
    from whiflash.bench.text_replay import FULL, QUICK, TextReplay, run_writer
    from whiflash.cli.replay_runs import PAGE, open_runs, require_runs

    if data is None:
        raise ConfigError(f"give --data FOLDER with recorded runs; {PAGE}")
    require_runs(data)
    sizes = QUICK if quick else FULL
    runs = open_runs(data, run_writer(model or DEFAULT_MODEL), sizes.max_runs)
    replay = TextReplay(runs, sizes, _say)
    sections = {name: getattr(replay, name)() for name in MEASURED}
    sections["reference"] = reference_rows(*(sections[name] for name in MEASURED[:3]))
    if as_json:
        typer.echo(json.dumps({"model": model or DEFAULT_MODEL, **sections}))
        return
    for name, heading in HEADINGS.items():
        if sections[name]:
            typer.echo("\n".join([heading, *table(sections[name]), ""]))


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Rows that have the same keys, for a person: text left, numbers right."""
    keys = list(rows[0])
    cells = [[_heading(key) for key in keys], *([_cell(row[key]) for key in keys] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(keys))]
    for line in cells:
        first = line[0].ljust(widths[0])
        numbers = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        yield "  ".join([first, *numbers]).rstrip()


def _heading(key: str) -> str:
    words = key.replace("accepted_length", "AL").replace("tokens_per_round", "tok/round")
    return words.replace("_", " ")


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
