"""`whiflash bench SUITE`: measure, and write docs/benchmarks/SUITE.json."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from whiflash.bench.suite import SUITES, SuiteOptions, run_suite
from whiflash.cli import options
from whiflash.core.errors import ConfigError

FORCED = "forced"
Suite = Annotated[str | None, typer.Argument(help=f"one of: {', '.join(SUITES)} [core]")]
Data = Annotated[
    Path | None, typer.Option("--data", help="folder of recorded runs: forced, routing, store")
]
Forced = Annotated[bool, typer.Option("--forced", help="the suite forced, over --data")]
Quick = Annotated[bool, typer.Option("--quick", help="few short runs, to see that it works")]
Full = Annotated[
    bool,
    typer.Option("--full", help="routing alone: hours, more rows, batches and repeats"),
]  # fmt: skip
Drafters = Annotated[
    list[str] | None,
    typer.Option("--drafter", help="eagle3:FOLDER or dflash:FOLDER, instead of those shipped"),
]
Out = Annotated[Path, typer.Option("--out", help="folder of the result")]


def bench(
    suite: Suite = None,
    model: options.Model = None,
    data: Data = None,
    drafter: Drafters = None,
    forced: Forced = False,
    quick: Quick = False,
    full: Full = False,
    out: Out = Path("docs/benchmarks"),
) -> None:
    """Run a benchmark suite; its result carries command, commit, machine and twin."""
    model_name = model if model is not None else "smollm2-135m"
    if forced and suite not in (None, FORCED):
        raise ConfigError(f"the suite {suite} and --forced exclude each other; name one of them")
    name = FORCED if forced else suite or "core"
    # What an ended run has measured is kept until one comes to its end.
    cells = None if quick else Path(".bench") / (f"{name}-full" if full else name)
    settings = SuiteOptions(model_name, data, quick, tuple(drafter or ()), full, cells)
    file = run_suite(name, settings, out)
    if cells is not None:
        shutil.rmtree(cells, ignore_errors=True)
    typer.echo(f"wrote {file}")
