"""`whiflash bench SUITE`: measure, and write docs/benchmarks/SUITE.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whiflash.bench.suite import SUITES, SuiteOptions, run_suite
from whiflash.cli import options

Suite = Annotated[str, typer.Argument(help="one of: " + ", ".join(SUITES))]
Data = Annotated[Path | None, typer.Option("--data", help="folder of prompts, for suites with any")]
Quick = Annotated[bool, typer.Option("--quick", help="few short runs, to see that it works")]
Out = Annotated[Path, typer.Option("--out", help="folder of the result")]


def bench(
    suite: Suite = "core",
    model: options.Model = None,
    data: Data = None,
    quick: Quick = False,
    out: Out = Path("docs/benchmarks"),
) -> None:
    """Run a benchmark suite; its result carries command, commit, machine and twin."""
    model_name = model if model is not None else "smollm2-135m"
    file = run_suite(suite, SuiteOptions(model=model_name, data=data, is_quick=quick), out)
    typer.echo(f"wrote {file}")
